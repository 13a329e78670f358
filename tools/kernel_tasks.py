"""What a kernel is given to do, and what should come out: tensors, the result in fp64, how far elements may be off."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final

import torch

from tools.exactness import allowed_error, in_doubles, native_passes
from tools.kernel import Group, Kernel
from tools.running import Outcome, Task
from yolo_rocm.conv.launched import Strides
from yolo_rocm.conv.plan import Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton.calls import strides
from yolo_rocm.engines.activations import IDENTITY, activate_in_place
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.names import Pass

# Roundings to fp32 that one element may have lost, in units of the sum of its terms' magnitudes.
_FEW_ROUNDINGS: Final = 4


def task(kernel: Kernel) -> Task:
    """Return what a kernel of the table is given."""
    problem = replace(kernel.problem, device="cpu")
    operands = _operands(problem)
    if kernel.name == "transpose":
        source = operands.x.contiguous()
        shape, exact = problem.input_shape, source.double()
        return _writing(kernel, [source], strides(shape, True), exact, exact.abs(), 1)
    if kernel.name == "sum_partials":
        partials = _random_partials(kernel)
        exact, magnitude = (_summed(each.double(), problem) for each in (partials, partials.abs()))
        return _writing(kernel, [partials], kernel.weight, exact, magnitude, kernel.splits)
    if kernel.splits:
        exact, magnitude = (_partials(kernel, problem, each) for each in _both(operands))
        inputs, terms = [operands.x, operands.grad], kernel.call.numbers[1]
        return _writing(kernel, inputs, exact.stride(), exact, magnitude, terms)
    back = "grad_input" in kernel.name
    exact, magnitude = (passes["grad_input" if back else "forward"] for passes in _passes(problem))
    weight = _with_strides(operands.weight, kernel.weight)
    inputs = [operands.grad if back else operands.x, weight]
    if kernel.bias:
        inputs.append(_bias(problem))
        added = inputs[-1].double()[:, None, None]
        exact, magnitude = exact + added, magnitude + added.abs()
    elif len(kernel.types) == 4:
        inputs.append(weight)  # in the place of a bias where none is added
    if kernel.activation != IDENTITY:  # whose slope is at most 1.1, and which rounds a few times more
        exact = activate_in_place(exact.clone(), kernel.activation)
        magnitude = 1.1 * magnitude + exact.abs()
    shape = problem.input_shape if back else problem.output_shape
    terms = math.prod(problem.weight_shape[0 if back and problem.groups == 1 else 1 :])
    by = strides(shape, problem.channels_last)
    return _writing(kernel, inputs, by, exact, magnitude, max(terms, 2))


def _writing(
    kernel: Kernel,
    inputs: list[torch.Tensor],
    by: tuple[int, ...],
    exact: torch.Tensor,
    magnitude: torch.Tensor,
    terms: int,
) -> Task:
    """Return the task of a kernel that writes one tensor, its last.

    Args:
        kernel: The kernel.
        inputs: Tensors in its order.
        by: Strides of the output.
        exact: The output in fp64.
        magnitude: The sum of the absolute values of each element's terms.
        terms: How many terms an element has; of one, the result is exact.
    """
    dtype = kernel.types[-1]
    rounding = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    roundings = max(_FEW_ROUNDINGS, math.sqrt(terms)) * torch.finfo(torch.float32).eps
    most = (rounding * exact.abs() + roundings * magnitude) * (terms > 1)
    back = Pass.GRAD_INPUT if "grad_input" in kernel.name else Pass.FORWARD
    which = Pass.GRAD_WEIGHT if kernel.splits else back
    # The bound of the GPU tests for fp32, in which every kernel adds, and one rounding to what it writes.
    allowed = 0.0 if terms == 1 else allowed_error(replace(kernel.problem, dtype=torch.float32), which) + rounding

    def compare(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
        (result,), (flags,) = got, known
        off = ((result.double() - exact).abs() > most) | result.isnan()
        return [Outcome(relative_error(result[flags], exact[flags]), allowed, int((off & flags).sum()))]

    output = torch.empty_strided(exact.shape, by, dtype=dtype)
    return Task([*inputs, output], (len(inputs),), compare)


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
        else:  # transpose
            shape = problem.input_shape
            total += part(x, constants["BLOCK_C"], shape[1]) * part(y, constants["BLOCK_P"], math.prod(shape[2:]))
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
