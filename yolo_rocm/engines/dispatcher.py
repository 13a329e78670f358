"""Python kernels in torch's dispatcher: put in, and taken out without pulling them from under another thread.

A thread that calls a convolution looks the kernel up first and then waits for the GIL. If the kernel is destroyed in
between, torch reads freed memory (seen with 1.13.1 and 2.10: `interpreter == pyinterpreter_ INTERNAL ASSERT FAILED`).
The thread that ends the last patch cannot be hit. Others can.
"""

from __future__ import annotations

import inspect
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import torch

_OVERRIDE_WARNING: Final = r"(?s).*Overriding a previously registered kernel"  # in the middle of several lines
# Newer torch hands out a kernel that lives as long as what is handed out.
_HANDED_OUT: Final = getattr(torch._C, "_dispatch_get_computed_kernel_for_dispatch_key", None)
HANDS_OUT: Final = _HANDED_OUT is not None
_KEPT_SECONDS: Final = 60.0  # far longer than a thread waits for the GIL

_retired: deque[tuple[float, list[Any]]] = deque()
_hidden: dict[tuple[str, str], Callable[..., Any] | None] = {}  # (operator, key) -> the kernel below, while ours is in
_callers: set[int] = set()


def put_in(key: str, functions: Mapping[str, Callable[..., Any]]) -> Any:
    """Register kernels of `aten` operators at a dispatch key and return the library that holds them.

    A kernel of torch's at the same key is hidden by ours, and `below` returns it.
    """
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    override = "allow_override" in inspect.signature(library.impl).parameters
    options = {"allow_override": True} if override else {}
    try:
        with warnings.catch_warnings():
            # Only Python's own check takes `allow_override`; C++ warns all the same, once.
            warnings.filterwarnings("ignore", message=_OVERRIDE_WARNING)
            for name, function in functions.items():
                hidden = _handed_out(name, key)
                library.impl(name, function, key, **options)
                _hidden[name, key] = hidden
    except BaseException:
        _destroy(library)
        for name in functions:
            _hidden.pop((name, key), None)
        raise
    _look_up_again(key, functions)
    return library


def hides(name: str, key: str) -> bool:
    """Return whether a kernel of ours is in the place of torch's for an operator at a dispatch key now."""
    return (name, key) in _hidden


def below(name: str, key: str) -> Callable[..., Any] | None:
    """Return the kernel that ours hides; None where nothing is hidden, or torch hands out no kernels (before 2.9)."""
    return _hidden.get((name, key))


def _handed_out(name: str, key: str) -> Callable[..., Any] | None:
    if _HANDED_OUT is None or not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
        return None
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return partial(_HANDED_OUT(f"aten::{name}", key).call_boxed, keys)


def note_caller() -> None:
    """Remember that this thread calls our kernels."""
    _callers.add(threading.get_ident())


def forget_caller() -> None:
    """Forget it: this thread is about to end its patch, so it is not in one of them."""
    _callers.discard(threading.get_ident())


def take_out(library: Any, key: str, names: Mapping[str, Any]) -> bool:
    """Take kernels out of the dispatcher; False where another thread may be about to call one, and they have to stay.

    Older torch gives no way to keep a kernel alive, so there they stay while another thread lives that has called one;
    what is left is a thread's very first call in the very moment of the last patch's end.
    """
    if _HANDED_OUT is not None:
        now = time.monotonic()
        while _retired and now - _retired[0][0] > _KEPT_SECONDS:
            _retired.popleft()
        _retired.append((now, [_HANDED_OUT(f"aten::{name}", key) for name in names]))
    else:
        _callers.intersection_update(thread.ident or 0 for thread in threading.enumerate())
        if _callers - {threading.get_ident()}:
            return False
    _destroy(library)
    for name in names:
        _hidden.pop((name, key), None)
    _look_up_again(key, names)
    return True


def _look_up_again(key: str, names: Iterable[str]) -> None:
    """Let a compiler look up which kernel an operator has at a key.

    While it traces and measures, torch dispatches in Python and remembers what it has found; a kernel that was taken
    out since would be called through a null pointer (seen with 2.10 and 2.11).
    """
    for name in names:
        operator, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, operator), overload or "default")
        if hasattr(found, "_uncache_dispatch"):  # torch 1.13 remembers nothing
            found._uncache_dispatch(getattr(torch._C.DispatchKey, key))


def _destroy(library: Any) -> None:
    if hasattr(library, "_destroy"):
        library._destroy()
        return
    # torch < 2.1 frees the kernels only when the object dies; a traceback may keep it alive.
    torch.library._impls.difference_update(library._op_impls)
    library._op_impls.clear()
    del library.m
