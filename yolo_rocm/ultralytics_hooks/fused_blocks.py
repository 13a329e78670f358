"""Ultralytics' blocks of convolution, BatchNorm and activation, which are computed as one in training.

Where the convolution is none of ours, or is being timed, the last two are.

Only the classes are patched. Modules stay as they are, so checkpoints and copies know nothing of it. Whatever is not
the plain block in training mode is computed by the block's own `forward`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

from ..utils.scoped_patch import attribute
from .probes import BLOCKS, FUSED_BLOCKS, missing, same_code

_ours: WeakSet[Callable[..., Any]] = WeakSet()


def is_ours(forward: Any) -> bool:
    """Return whether a `forward` is what this module puts in the place of a block's, itself and no wrapper of it."""
    return forward in _ours


@contextmanager
def fused_blocks() -> Iterator[None]:
    """Compute blocks as one while the context is open, on devices that patches cover.

    Nested and concurrent use counts. Nothing is done with an Ultralytics whose blocks compute something else, and
    where somebody else has replaced the `forward` of a block.
    """
    with ExitStack() as undo:
        for name, code in {} if missing(FUSED_BLOCKS) else BLOCKS.items():
            place = attribute(f"ultralytics.nn.modules.conv:{name}", "forward")
            undo.enter_context(place.on(functools.partial(_fused, code)))
        yield


def _fused(code: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of a block's `forward`: the original itself where its code is not the known one."""
    if not same_code(original, code):
        return original
    convolution = code.__code__.co_names[-1]
    from ..blocks.block import conv_norm_act
    from ..engines.torch_state import is_compiling
    from ..norm.fused import norm_act
    from ..norm.fusible import fusible

    @functools.wraps(original)
    def forward(self: Any, x: Any) -> Any:
        if is_compiling():  # first: this is all that a compiler has to understand
            return original(self, x)
        modules = self._modules
        norm, act = modules.get("bn"), modules.get("act")
        if not fusible(norm, act):
            return original(self, x)
        conv = modules.get(convolution)
        if conv is None:  # an attribute, and no child
            return original(self, x)
        y = conv_norm_act(x, conv, norm, act)
        if y is not None:
            return y
        y = conv(x)
        result = norm_act(y, norm, act)
        return act(norm(y)) if result is None else result

    _ours.add(forward)
    return forward
