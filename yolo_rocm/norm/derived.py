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


def _noting(native: Function, joins: bool) -> Function:
    """Return a function of torch that notes what its result is computed of: all of its first argument, if it joins."""

    @functools.wraps(native)
    def function(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():  # a layer of the network: this is all that a compiler has to understand
            return native(*args, **kwargs)
        result = native(*args, **kwargs)
        table = recipes.derivable(result) if type(result) is torch.Tensor else None
        if table is not None and args:
            rest = args[1:]
            if all(isinstance(value, _PLAIN) for value in (*rest, *kwargs.values())):
                parts = args[0] if joins else args[:1]
                table.derive(result, lambda *again: native(again if joins else again[0], *rest, **kwargs), parts)
        return result

    return function


def _made_once(joins: bool) -> Callable[[Function], Function]:
    """Return what makes a function anew only for another one: it is asked in every forward pass."""
    made: Any = None

    def once(native: Function) -> Any:
        nonlocal made
        if made is None or made.__wrapped__ is not native:
            made = _noting(native, joins)
        return made

    return once


_noted_cat, _noted_interpolate, _noted_pool = (_made_once(joins) for joins in (True, False, False))


def _add(native: Function) -> Function:
    @functools.wraps(native)
    def __add__(self: torch.Tensor, other: Any) -> Any:
        result = native(self, other)
        if recipes.active_recipes() is not None and isinstance(other, torch.Tensor):
            table = recipes.derivable(result)
            if table is not None:
                table.derive(result, native, (self, other))
        return result

    return __add__
