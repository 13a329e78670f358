"""Ultralytics' blocks in validation and prediction: convolution, BatchNorm and activation as one.

A fused model has its `forward` on each module, which a patch of the class does not reach; so what is patched is the
call. Only the class is: modules stay as they are, and a model that was fused before or is used afterwards knows nothing
of it. Whatever is not the plain block of a network that only computes is called the ordinary way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..utils.scoped_patch import attribute
from .fused_blocks import is_ours
from .probes import BLOCKS, FUSED_CODE, INFERENCE_BLOCKS, missing, same_code


@contextmanager
def inference_blocks() -> Iterator[None]:
    """Compute blocks as one where autograd is off, while the context is open, on devices that a patch serves.

    Nested and concurrent use counts. Nothing is done with an Ultralytics whose blocks compute something else.
    """
    if missing(INFERENCE_BLOCKS):
        yield
        return
    with attribute("ultralytics.nn.modules.conv:Conv", "__call__").on(_called, "blocks of inference"):
        yield


def _called(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of a block's call."""
    import torch

    from ..blocks.inference import conv_act
    from ..engines.torch_state import is_compiling

    module = torch.nn.Module
    inherited = original is vars(module)["__call__"]

    def is_plain_eager(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Tracers put a call of their own on `Module`: it is looked up each time.
        return (module.__call__ if inherited else original)(self, *args, **kwargs)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or torch.is_grad_enabled() or kwargs or len(args) != 1:
            return is_plain_eager(self, *args, **kwargs)
        own = self.__dict__
        if own["_forward_pre_hooks"] or own["_forward_hooks"] or own["_backward_hooks"]:
            return is_plain_eager(self, *args)
        modules, norm, forward = own["_modules"], None, own.get("forward")
        if forward is None:
            norm = modules.get("bn")
            if norm is None or not _is_block(type(self).forward):
                return is_plain_eager(self, *args)
        elif getattr(forward, "__self__", None) is not self or not _is_fused(getattr(forward, "__func__", None)):
            return is_plain_eager(self, *args)
        result = conv_act(args[0], modules.get("conv"), norm, modules.get("act"))
        return is_plain_eager(self, *args) if result is None else result

    return call


def _is_block(forward: Any) -> bool:
    """Return whether a class computes `act(bn(conv(x)))`: by Ultralytics' own code, or by ours in its place."""
    return _has_code(forward, BLOCKS["Conv"]) or is_ours(forward)


def _is_fused(forward: Any) -> bool:
    """Return whether a module computes `act(conv(x))`, by Ultralytics' own code."""
    return _has_code(forward, FUSED_CODE)


@functools.lru_cache(maxsize=64)
def _has_code(function: Any, code: Callable[..., Any]) -> bool:
    return same_code(function, code)
