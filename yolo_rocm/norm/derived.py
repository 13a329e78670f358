"""What torch computes of activations without anything new in it: joined, added, enlarged, pooled.

These functions of torch note, while recipes are kept, what their result was computed from. They are replaced where
Python finds them: below autograd `add` would cost every addition of the process a call into Python, and a mode over all
functions was measured to cost a fifth of a small network's forward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from ..engines.torch_state import is_compiling
from ..utils.scoped_patch import attribute
from . import recipes

Function = Callable[..., Any]
_PLAIN: Final = (int, float, str, bool, tuple, list, type(None))


@contextmanager
def functions_noted() -> Iterator[None]:
    """Note `cat`, up-sampling and pooling of this process while the context is open."""
    places = "torch.nn.functional"
    cat, interpolate = attribute("torch", "cat"), attribute(places, "interpolate")
    with cat.on(_noted_cat), interpolate.on(_noted_interpolate), attribute(places, "max_pool2d").on(_noted_pool):
        yield


@contextmanager
def additions_noted() -> Iterator[None]:
    """Note `a + b` while the context is open.

    Apart from the others, to be left on for a whole run: Python forgets what it knows of a class each time that it is
    changed, and newer ones give up on it after a thousand times.
    """
    with attribute("torch:Tensor", "__add__").on(_add):
        yield


def _cat(native: Function) -> Function:
    @functools.wraps(native)
    def cat(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():  # a layer of the network: this is all that a compiler has to understand
            return native(*args, **kwargs)
        result = native(*args, **kwargs)
        known = recipes.derivable(result)
        if known is not None and args and "out" not in kwargs:
            rest = args[1:]
            known.derive(result, lambda *parts: native(parts, *rest, **kwargs), args[0])
        return result

    return cat


def _of_one(native: Function) -> Function:
    @functools.wraps(native)
    def function(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return native(*args, **kwargs)
        result = native(*args, **kwargs)
        known = recipes.derivable(result) if type(result) is torch.Tensor else None
        if known is not None and args:
            rest = args[1:]
            if all(isinstance(value, _PLAIN) for value in (*rest, *kwargs.values())):
                known.derive(result, lambda part: native(part, *rest, **kwargs), args[:1])
        return result

    return function


def _made_once(make: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return what makes a function anew only for another one: it is asked in every forward pass."""
    last: tuple[Any, Any] = (None, None)

    def once(native: Function) -> Any:
        nonlocal last
        known, made = last
        if known is not native:
            made = make(native)
            last = native, made
        return made

    return once


_noted_cat, _noted_interpolate, _noted_pool = _made_once(_cat), _made_once(_of_one), _made_once(_of_one)


def _add(native: Function) -> Function:
    @functools.wraps(native)
    def __add__(self: torch.Tensor, other: Any) -> Any:
        result = native(self, other)
        if recipes.active_recipes() is not None and isinstance(other, torch.Tensor):
            known = recipes.derivable(result)
            if known is not None:
                known.derive(result, native, (self, other))
        return result

    return __add__
