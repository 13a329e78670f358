"""What all calls of a block with the same shapes have in common, found out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from ..conv.patch import Patch, Route
from ..conv.problem import laid_out
from ..engines.names import Pass
from ..norm.fused import find_route
from ..norm.patch import NormPatch, NormRoute

_LAYOUTS: Final = (torch.contiguous_format, torch.channels_last)
_NO_OUTPUT_PADDING: Final = (0, 0)
_BY_NAME: Final = {torch.float16: torch.Tensor.half, torch.bfloat16: torch.Tensor.bfloat16}


class BlockPlan:
    """How calls of one kind are computed. Whatever decides that is part of the key that this is found by.

    Attributes:
        patch: Of the convolution; another one plans anew.
        generation: Of its plans; later ones may be others.
        conv: Route of the convolution; None where the block must be computed by its modules.
        norm: Route of BatchNorm and activation.
        dtype: Data type that input, weight and bias of the convolution are computed in: theirs, or autocast's.
        is_cast: Whether autocast could change what the forward pass computes: all but kernels of ours call torch.
        convert: Makes a weight one of that data type, in the layout that the convolution reads; None where all have it.
        widens: Whether the weight has fp32 and is converted: its gradient had best come in fp32.
        strides: Of the convolution's output, and of its gradient.
        layout: Of the same.
        channels_last: Whether the convolution's results are laid out so.
        shape: Of the output.
        values: Of the output.
    """

    __slots__ = (
        "channels_last", "conv", "convert", "dtype", "generation", "is_cast", "layout", "norm", "patch", "shape",
        "strides", "values", "widens",
    )  # fmt: skip

    conv: Route | None
    norm: NormRoute
    dtype: torch.dtype
    convert: Callable[[torch.Tensor], torch.Tensor] | None
    is_cast: bool
    widens: bool
    shape: torch.Size
    values: int
    strides: tuple[int, ...]
    layout: torch.memory_format
    channels_last: bool

    def __init__(self, patch: Patch) -> None:
        self.patch, self.generation = patch, patch.planner.generation
        self.conv = None

    def is_current(self, patch: Patch) -> bool:
        """Return whether nothing else has been planned since."""
        return self.patch is patch and self.generation == patch.planner.generation


def find(
    patch: Patch, norms: NormPatch, x: torch.Tensor, modules: tuple[Any, Any, Any], slope: float, to: torch.dtype | None
) -> BlockPlan:
    """Find out how such calls are computed.

    Args:
        patch: Of convolutions.
        norms: Of normalisations.
        x: Input of the block.
        modules: Convolution, BatchNorm and activation.
        slope: Of a leaky ReLU.
        to: Data type of autocast; None where it is off.
    """
    known = BlockPlan(patch)
    conv, norm, act = modules
    weight, bias = conv.weight, conv.bias
    given = [tensor for tensor in (x, weight, bias) if tensor is not None]
    if (
        x.dim() != 4
        or conv.padding_mode != "zeros"
        or not all(type(value) is tuple for value in (conv.stride, conv.padding, conv.dilation))  # as torch makes them
        or not all(tensor.is_floating_point() and tensor.device == x.device for tensor in given)
        or not all(type(parameter) in (nn.Parameter, torch.Tensor) for parameter in given[1:])
        or (bias is not None and bias.shape != weight.shape[:1])
    ):
        return known
    if to is not None and any(tensor.dtype == torch.float64 for tensor in given):  # which autocast leaves alone
        return known
    dtype = x.dtype if to is None else to
    if to is None and any(tensor.dtype != dtype for tensor in given):
        return known
    known.dtype = dtype
    geometry = (conv.stride, conv.padding, conv.dilation, False, _NO_OUTPUT_PADDING, conv.groups)
    found = patch.lookup(x.detach().to(dtype), weight.detach().to(dtype), geometry)
    if found is None:
        return known
    problem = found.problem
    example = torch.empty(problem.output_shape, dtype=dtype, device=x.device)
    example = laid_out(example, problem.channels_last)
    route = find_route(norms, example, norm, act, slope)
    if route is None:
        return known
    converted = any(tensor.dtype != dtype for tensor in given[1:])
    known.convert = _conversion(dtype, found.weight_layout) if converted else None
    known.widens = converted and weight.dtype == torch.float32
    known.norm, known.layout = route, _LAYOUTS[route.problem.channels_last]
    known.shape, known.strides, known.channels_last = example.shape, example.stride(), problem.channels_last
    known.values = example.numel()
    engines = (found.served.plan[Pass.FORWARD].algorithm.engine, route.engines[0])
    known.is_cast = engines != ("triton", "triton")
    known.conv = found
    return known


def _conversion(dtype: torch.dtype, layout: torch.memory_format) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what converts a weight; methods for one data type take two thirds of the host's time for `to`."""
    convert: Callable[..., torch.Tensor] = _BY_NAME.get(dtype) or partial(torch.Tensor.to, dtype=dtype)
    return convert if layout is torch.preserve_format else partial(convert, memory_format=layout)
