"""What a kernel is given to do, and what should come out: tensors, the result in fp64, how far elements may be off."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch

from tools.exactness import in_doubles, native_passes
from tools.kernel import Group, Kernel
from yolo_rocm.conv.launched import Strides
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.activations import IDENTITY, activate_in_place

# Roundings to fp32 that one element may have lost, in units of the sum of its terms' magnitudes.
_FEW_ROUNDINGS: Final = 4


@dataclass(frozen=True)
class Task:
    """Inputs and results of a kernel.

    Attributes:
        inputs: Tensors in the kernel's order.
        shape: Of the output.
        strides: Of the output, elements.
        dtype: Of the output.
        exact: The output in fp64.
        magnitude: The sum of the absolute values of each element's terms.
        terms: How many terms an element has.
    """

    inputs: dict[str, torch.Tensor]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    exact: torch.Tensor
    magnitude: torch.Tensor
    terms: int

    def wrong(self, got: torch.Tensor, known: torch.Tensor) -> int:
        """Count the elements that are further off than sums in fp32 and one rounding of the result allow."""
        rounding = 0.0 if self.dtype == torch.float32 else torch.finfo(self.dtype).eps / 2
        roundings = max(_FEW_ROUNDINGS, math.sqrt(self.terms)) * torch.finfo(torch.float32).eps
        allowed = rounding * self.exact.abs() + roundings * self.magnitude
        if self.terms == 1:
            allowed = torch.zeros_like(allowed)
        off = (got.double() - self.exact).abs() > allowed
        return int(((off | got.isnan()) & known).sum())


def task(kernel: Kernel) -> Task:
    """Return what a kernel of the table is given."""
    problem = replace(kernel.problem, device="cpu")
    operands = _operands(problem)
    if kernel.name == "transpose":
        source = operands.x.contiguous()
        shape, exact = problem.input_shape, source.double()
        return Task({"x": source}, shape, strides(shape, True), problem.dtype, exact, exact.abs(), 1)
    if kernel.name == "sum_partials":
        partials = _random_partials(kernel)
        exact, magnitude = (_summed(each.double(), problem) for each in (partials, partials.abs()))
        inputs, shape = {"partials": partials}, problem.weight_shape
        return Task(inputs, shape, kernel.weight, problem.dtype, exact, magnitude, kernel.splits)
    if kernel.splits:
        exact, magnitude = (_partials(kernel, problem, each) for each in _both(operands))
        shape, by, terms = tuple(exact.shape), exact.stride(), kernel.call.numbers[1]
        inputs = {"x": operands.x, "grad": operands.grad}
        return Task(inputs, shape, by, torch.float32, exact, magnitude, terms)
    which = "grad_input" if "grad_input" in kernel.name else "forward"
    exact, magnitude = (passes[which] for passes in _passes(problem))
    weight = _with_strides(operands.weight, kernel.weight)
    inputs = {"grad" if which == "grad_input" else "x": operands.grad if which == "grad_input" else operands.x}
    inputs["weight"] = weight
    if len(kernel.types) == 4:
        inputs["bias"] = weight  # in its place where none is added
    if kernel.bias:
        inputs["bias"] = _bias(problem)
        added = inputs["bias"].double()[:, None, None]
        exact, magnitude = exact + added, magnitude + added.abs()
    if kernel.activation != IDENTITY:  # whose slope is at most 1.1, and which rounds a few times more
        exact = activate_in_place(exact.clone(), kernel.activation)
        magnitude = 1.1 * magnitude + exact.abs()
    shape = problem.input_shape if which == "grad_input" else problem.output_shape
    terms = math.prod(problem.weight_shape[0 if which == "grad_input" and problem.groups == 1 else 1 :])
    by = strides(shape, problem.channels_last)
    return Task(inputs, shape, by, problem.dtype, exact, magnitude, max(terms, 2))


def elements_written(kernel: Kernel, groups: Iterable[Group]) -> int:
    """Return how many elements of the output workgroups write, by the tile of the kernel and even stride phases."""
    constants, problem = kernel.call.constants, kernel.problem
    o, c, height, width = problem.weight_shape

    def part(index: int, tile: int, length: int) -> int:
        return max(0, min(tile, length - index * tile))

    total = 0
    for x, y, _ in groups:
        if kernel.call.kernel in ("gather_gemm", "flat_gemm"):
            back = "grad_input" in kernel.name
            channels, pixels = (problem.in_channels, problem.input_shape) if back else (o, problem.output_shape)
            phases = math.prod(problem.stride) if back else 1
            pixels_of_phase = problem.batch * math.prod(pixels[2:]) // phases
            tiles = -(-channels // constants["BLOCK_N"])
            total += part(x // tiles, constants["BLOCK_M"], pixels_of_phase) * part(
                x % tiles, constants["BLOCK_N"], channels
            )
        elif kernel.call.kernel == "weight_gemm":
            length = c * height * width if constants["FLAT"] else c
            tiles = -(-length // constants["BLOCK_N"])
            taps = 1 if constants["FLAT"] else height * width
            total += part(x // (tiles * taps), constants["BLOCK_M"], o) * part(x % tiles, constants["BLOCK_N"], length)
        elif kernel.call.kernel == "weight_gemm_rows":
            tiles = -(-c // constants["BLOCK_N"])
            total += 3 * part(x // (tiles * height), constants["BLOCK_M"], o) * part(x % tiles, constants["BLOCK_N"], c)
        elif kernel.call.kernel == "depthwise":
            pixels_of_sample = math.prod(problem.output_shape[2:])
            tiles = -(-pixels_of_sample // constants["BLOCK_P"])
            total += part(x % tiles, constants["BLOCK_P"], pixels_of_sample) * part(y, constants["BLOCK_C"], o)
        elif kernel.call.kernel == "depthwise_weight":
            total += part(x, constants["BLOCK_C"], o) * height * width
        elif kernel.call.kernel == "sum_partials":
            total += part(x, constants["BLOCK_E"], o * c * height * width)
        elif kernel.call.kernel == "transpose":
            shape = problem.input_shape
            total += part(x, constants["BLOCK_C"], shape[1]) * part(y, constants["BLOCK_P"], math.prod(shape[2:]))
        else:
            raise ValueError(f"no rule for what {kernel.call.kernel} writes")
    return total


@lru_cache(maxsize=32)
def _operands(problem: ConvProblem) -> Operands:
    """Return random operands without denormals, which the matrix units of MI200 take for zero in half precision."""
    smallest = torch.finfo(problem.dtype).tiny
    return Operands(*(each.masked_fill_(each.abs() < smallest, 0) for each in Operands.of(problem)))  # strides stay


def _both(operands: Operands) -> tuple[Operands, Operands]:
    """Return the operands in fp64, and their absolute values."""
    wide = in_doubles(operands)
    return wide, Operands(*(each.abs() for each in wide))


@lru_cache(maxsize=32)
def _passes(problem: ConvProblem) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    exact, magnitude = _both(_operands(problem))
    return native_passes(problem, exact), native_passes(problem, magnitude)


def _bias(problem: ConvProblem) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(problem.out_channels, generator=generator).to(problem.dtype)


def _random_partials(kernel: Kernel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((kernel.splits, math.prod(kernel.problem.weight_shape)), generator=generator)


def _summed(partials: torch.Tensor, problem: ConvProblem) -> torch.Tensor:
    o, c, height, width = problem.weight_shape
    return partials.sum(0).reshape(o, height, width, c).permute(0, 3, 1, 2)


def _partials(kernel: Kernel, problem: ConvProblem, operands: Operands) -> torch.Tensor:
    """Return the partial sums of each split: splits, output channels, taps, channels of a group."""
    o, c, height, width = problem.weight_shape
    columns = torch.nn.functional.unfold(operands.x, problem.kernel, problem.dilation, problem.padding, problem.stride)
    pixels = columns.shape[0] * columns.shape[2]
    groups = problem.groups
    # groups, terms of the sum, pixels of the batch
    columns = columns.permute(1, 0, 2).reshape(groups, c * height * width, pixels)
    grad = operands.grad.flatten(2).permute(1, 0, 2).reshape(groups, o // groups, pixels)
    parts = [grad[:, :, own] @ columns[:, :, own].transpose(1, 2) for own in _splits(kernel, problem)]
    whole = torch.stack(parts).reshape(len(parts), o, c, height, width)
    return whole.permute(0, 1, 3, 4, 2).contiguous()


def _splits(kernel: Kernel, problem: ConvProblem) -> list[torch.Tensor]:
    """Return the output pixels of each split, as `yolo_rocm.conv.triton.steps` cuts them."""
    constants, (pixels, length) = kernel.call.constants, kernel.call.numbers[:2]
    width = constants.get("STEP_W", 0)
    if not width:
        every = torch.arange(pixels)
        return [every[first : first + length] for first in range(0, pixels, length)]
    step, (rows, columns) = constants["BLOCK_K"], kernel.call.numbers[2:4]
    steps = []
    for sample in range(problem.batch):
        image = torch.arange(rows * columns).reshape(rows, columns) + sample * rows * columns
        for band in torch.split(image, step // width):
            steps += [rectangle.flatten() for rectangle in torch.split(band, width, dim=1)]
    each = length // step
    return [torch.cat(steps[first : first + each]) for first in range(0, len(steps), each)]


def _with_strides(tensor: torch.Tensor, by: Strides) -> torch.Tensor:
    laid_out = torch.empty_strided(tensor.shape, by, dtype=tensor.dtype)
    return laid_out.copy_(tensor)
