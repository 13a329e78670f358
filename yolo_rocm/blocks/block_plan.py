"""What all calls of a block with the same shapes have in common, found out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from ..conv.patch import Patch, Route
from ..conv.problem import laid_out
from ..engines.names import Pass
from ..norm.fused import find_route
from ..norm.patch import NormPatch, NormRoute

_NO_OUTPUT_PADDING: Final = (0, 0)
_BY_NAME: Final = {torch.float16: torch.Tensor.half, torch.bfloat16: torch.Tensor.bfloat16}


@dataclass(slots=True)
class BlockPlan:
    """How calls of one kind are computed. Whatever decides that is part of the key that this is found by.

    Attributes:
        conv: Route of the convolution.
        norm: Route of BatchNorm and activation.
        dtype: Data type that input, weight and bias of the convolution are computed in: theirs, or autocast's.
        is_cast: Whether autocast could change what the forward pass computes: all but kernels of ours call torch.
        convert: Makes a weight one of that data type, in the layout that the convolution reads; None where all have it.
        widens: Whether the weight has fp32 and is converted: its gradient had best come in fp32.
        strides: Of the convolution's output, and of its gradient.
        channels_last: Whether the convolution's results are laid out so.
        values: Of the output.
    """

    conv: Route
    norm: NormRoute
    dtype: torch.dtype
    is_cast: bool
    convert: Callable[[torch.Tensor], torch.Tensor] | None
    widens: bool
    strides: tuple[int, ...]
    channels_last: bool
    values: int


def find(
    patch: Patch, norms: NormPatch, x: torch.Tensor, modules: tuple[Any, Any, Any], slope: float, to: torch.dtype | None
) -> BlockPlan | None:
    """Return how such calls are computed; None where the block must be computed by its modules.

    Args:
        patch: Of convolutions.
        norms: Of normalisations.
        x: Input of the block.
        modules: Convolution, BatchNorm and activation.
        slope: Of a leaky ReLU.
        to: Data type of autocast; None where it is off.
    """
    conv, norm, act = modules
    weight, bias = conv.weight, conv.bias
    given = [tensor for tensor in (x, weight, bias) if tensor is not None]
    dtype = x.dtype if to is None else to
    if (
        x.dim() != 4
        or conv.padding_mode != "zeros"
        or not all(type(value) is tuple for value in (conv.stride, conv.padding, conv.dilation))  # as torch makes them
        or not all(tensor.is_floating_point() and tensor.device == x.device for tensor in given)
        or not all(type(parameter) in (nn.Parameter, torch.Tensor) for parameter in given[1:])
        or (bias is not None and bias.shape != weight.shape[:1])
        # Autocast leaves fp64 alone; without it all have to be alike.
        or any(tensor.dtype == torch.float64 if to is not None else tensor.dtype != dtype for tensor in given)
    ):
        return None
    geometry = (conv.stride, conv.padding, conv.dilation, False, _NO_OUTPUT_PADDING, conv.groups)
    route = patch.lookup(x.detach().to(dtype), weight.detach().to(dtype), geometry)
    if route is None:
        return None
    last = route.problem.channels_last
    example = laid_out(torch.empty(route.problem.output_shape, dtype=dtype, device=x.device), last)
    norm_route = find_route(norms, example, norm, act, slope)
    if norm_route is None:
        return None
    converted = any(tensor.dtype != dtype for tensor in given[1:])
    engines = (route.served.plan[Pass.FORWARD].algorithm.engine, norm_route.engines[0])
    return BlockPlan(
        conv=route,
        norm=norm_route,
        dtype=dtype,
        is_cast=engines != ("triton", "triton"),
        convert=_conversion(dtype, route.weight_layout) if converted else None,
        widens=converted and weight.dtype == torch.float32,
        strides=example.stride(),
        channels_last=last,
        values=example.numel(),
    )


def _conversion(dtype: torch.dtype, layout: torch.memory_format) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what converts a weight; methods for one data type take two thirds of the host's time for `to`."""
    convert: Callable[..., torch.Tensor] = _BY_NAME.get(dtype) or partial(torch.Tensor.to, dtype=dtype)
    return convert if layout is torch.preserve_format else partial(convert, memory_format=layout)
