"""The seam under `torch.compile`: the layout it promises of a result, and who may use what has been compiled.

A compiler asks torch beforehand how a result will be laid out, and what it compiles checks that. torch's answer depends
on the backend it would choose: with the vendor library off it is mostly contiguous, where the seam keeps channels_last.
So while the seam's kernels are in for a device type, the answer for it is the seam's, between two runs too, when they
hand calls on to torch. What was compiled with one answer is never run with the other, neither in this process nor from
the caches that Inductor keeps on disk. Nothing is imported for all this before somebody compiles.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import torch

from .._version import __version__
from ..utils.scoped_patch import attribute
from .problem import results_channels_last

_PURPOSE: Final = "convolutions under torch.compile"
_CACHES: Final = "torch._inductor.codecache"
# What a fake convolution calls one after the other, in every torch that can compile.
_ASKED: Final = ("_select_conv_backend", "_conv_determine_backend_memory_format")


class Compiling:
    """What compilers get to know of a seam.

    Args:
        serving: Returns what computes on each device type of the seam now, in words; graphs and timings of others are
            not shared.
    """

    def __init__(self, serving: Callable[[], Mapping[str, str]]) -> None:
        self._serving = serving
        self._settled: dict[str, str] = {}
        self._lock = threading.RLock()
        self._undo = ExitStack()
        self._traced = self._keyed = False
        self._asking = threading.local()

    def settle(self) -> None:
        """Make what compilers get to know agree with what serves now: to be called after every change."""
        with self._lock:
            before, now = self._settled, dict(self._serving())
            if now == before:
                return
            self._settled = now
            if set(now) == set(before):  # other engines, the same layouts
                return
            self._undo.close()
            self._keyed = False
            if now and hasattr(torch, "compile") and all(hasattr(torch._C, name) for name in _ASKED):
                for name, wrapper in zip(_ASKED, (self._select, self._determine), strict=True):
                    self._undo.enter_context(attribute("torch._C", name).on(wrapper, _PURPOSE))
            stale = self._traced or (bool(set(now) - set(before)) and _anything_compiled())
            self._traced = False
        _forget(stale)  # waits for whoever compiles now, who may be waiting for the lock

    def _select(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def select(*args: Any, **kwargs: Any) -> Any:
            self._asking.dims = (kwargs["weight"] if "weight" in kwargs else args[1]).dim()
            return original(*args, **kwargs)

        return select

    def _determine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def determine(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> Any:
            if x.device.type not in self._serving():
                return original(x, weight, backend)
            self._note()
            if 0 in x.shape:  # torch's own kernel has it
                return original(x, weight, backend)
            # A one-dimensional one is asked about as if it had two: its results are contiguous all the same.
            if getattr(self._asking, "dims", None) == 3 or not results_channels_last(x, weight):
                return torch.contiguous_format
            return torch.channels_last if x.dim() == 4 else torch.channels_last_3d

        return determine

    def _note(self) -> None:
        """Remember that something is compiled, and keep it apart from what others have compiled."""
        self._traced = True
        if self._keyed or "torch._dynamo" not in sys.modules:
            return
        caches = importlib.import_module(_CACHES)
        with self._lock:
            if self._keyed or not self._settled:
                return
            self._keyed = True
            for owner, name, wrapper in (
                ("FxGraphHashDetails", "__init__", self._keyed_graphs),
                ("PersistentCache", "lookup", self._keyed_timings),
            ):
                if hasattr(caches, owner):
                    self._undo.enter_context(attribute(f"{_CACHES}:{owner}", name).on(wrapper, _PURPOSE))

    def _tag(self) -> str:
        return f"yolo_rocm {__version__} {sorted(self._serving().items())}"

    def _keyed_graphs(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def details(found: Any, *args: Any, **kwargs: Any) -> None:
            original(found, *args, **kwargs)
            found.yolo_rocm = self._tag()  # all attributes are part of the key

        return details

    def _keyed_timings(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def lookup(cache: Any, choices: Any, op: str, inputs: str, *args: Any, **kwargs: Any) -> Any:
            key = f"{inputs} {self._tag()}" if "conv" in op else inputs
            return original(cache, choices, op, key, *args, **kwargs)

        return lookup


def _anything_compiled() -> bool:
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and bool(getattr(getattr(frames, "output_codes", None), "seen", True))


def _forget(compiled: bool) -> None:
    """Forget the layouts that were promised so far, and what was compiled with them."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    clear = getattr(getattr(fakes, "FakeTensorMode", None), "cache_clear", None)
    if clear is not None:
        clear()
    dynamo: Any = sys.modules.get("torch._dynamo")
    if compiled and dynamo is not None:
        dynamo.reset()
