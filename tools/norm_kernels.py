"""The kernels of BatchNorm in the table of compiled kernels: which there are and what each is given.

What should come out is in `norm_exact`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import torch

from tools import norm_exact as right
from tools.kernel import DTYPES, Group, Kernel
from tools.running import Outcome, Task
from yolo_rocm.engines.triton.available import amd_family
from yolo_rocm.engines.triton.call import Call
from yolo_rocm.norm.problem import LEAKY_RELU, SILU, NormProblem
from yolo_rocm.norm.triton import calls
from yolo_rocm.norm.triton.tiles import SIZES, Tile, tile

PREFIX: Final = "norm "
# The layers of the table, as in a network: a large one, a small one for whole channels, and one whose sizes are
# multiples of nothing, in parts.
_USUAL: Final = (8, 32, 40, 40)
_SMALL: Final = (4, 32, 20, 20)
_ODD: Final = {False: (5, 3, 37, 29), True: (2, 20, 9, 11)}


def curated_norms(target: str, dtype: str, channels_last: bool, odd: bool = False) -> Iterator[Kernel]:
    """Yield every kernel with every tile that a target is given; `odd` is another layer, to be run whole."""
    family = amd_family(target)
    assert family is not None
    own, full, count = DTYPES[dtype], torch.float32, torch.int64
    shape = _ODD[channels_last] if odd else _USUAL
    activation = (LEAKY_RELU, 0.1) if odd and dtype == "bf16" else (SILU, 0.0)
    problem = NormProblem(shape, own, "cuda:0", channels_last, True, True, *activation)
    settings = (right.MOMENTUM, right.EPS, True, True)

    def made(name: str, each: object, call: Call, types: tuple[torch.dtype, ...], of: NormProblem = problem) -> Kernel:
        layout = "nhwc" if channels_last else "nchw"
        return Kernel(PREFIX + name, str(each), dtype, layout, call, types, of)

    sizes = {size: tile(family, size) for size in SIZES}
    for each in (each for each in sizes.values() if not each.whole):
        cut = _cut(problem, each)
        yield made("statistics", each, calls.partial_statistics(problem, cut, each), (own, full))
        yield made("activation", each, calls.activate(problem, each), (own, *[full] * 4, own))
        yield made("sums", each, calls.partial_gradients(problem, cut, each), (own, own, *[full] * 5))
        yield made("gradient", each, calls.input_gradient(problem, each), (own, own, *[full] * 5, own))
    small = problem if odd else replace(problem, shape=_SMALL)
    for each in (each for each in sizes.values() if each.whole):
        cut = _cut(small, each)
        forward = calls.whole_forward(small, cut, each, *settings)
        yield made("whole forward", each, forward, (own, full, full, count, *[full] * 4, own), small)
        back = calls.whole_backward(small, cut, each, True, True)
        yield made("whole backward", each, back, (own, own, *[full] * 6, own), small)
    if dtype != "fp32" or not channels_last:
        return  # the rest sees nothing of data type and layout
    each = sizes[SIZES[0]]
    cut = _cut(problem, each)
    combine = calls.combine_statistics(problem, cut, *settings)
    named = f"{combine.constants['BLOCK_S']}x{combine.constants['BLOCK_C']}" if not odd else ""
    yield made("combined statistics", named, combine, (full, full, full, count, full, full))
    yield made("combined sums", named, calls.combine_gradients(problem, cut, True, True), (full,) * 6)


def odd_one(kernel: Kernel, target: str) -> Kernel:
    """Return a kernel of the table, with its tile, for the odd layer."""
    every = curated_norms(target, kernel.dtype, kernel.layout == "nhwc", odd=True)
    return next(each for each in every if each.name == kernel.name and each.tile in (kernel.tile, ""))


def _cut(problem: NormProblem, each: Tile) -> calls.Parts:
    return calls.cut(problem, each, 32 if problem.shape == _USUAL else 4)


def task(kernel: Kernel) -> Task:
    """Return what a kernel is given."""
    problem: NormProblem = kernel.problem
    g, like = right.given(problem), torch.empty_like
    read = [g.grad, g.x, g.mean, g.invstd, g.weight, g.bias]
    tracked, vector, name = [g.running_mean, g.running_var, g.batches], like(g.mean), kernel.call.kernel
    if name == "partial_statistics":
        partial = torch.empty(4, right.parts(kernel), problem.channels)
        return Task([g.x, partial], (1,), lambda got, known: right.compare_partials(kernel, got[0], known[0]))
    if name == "activate":
        return Task([*read[1:], like(g.x)], (5,), lambda got, known: [right.compare_y(problem, got[0], known[0])])
    if name == "partial_gradients":
        partial = torch.empty(2, right.parts(kernel), problem.channels)
        return Task([*read, partial], (6,), lambda got, known: right.compare_sums(kernel, got[0], known[0]))
    if name == "input_gradient":
        tensors = [*read, torch.stack(right.coefficients(problem)).float(), like(g.x)]
        return Task(tensors, (7,), lambda got, known: [right.compare_dx(problem, got[0], known[0])])
    if name == "whole_forward":
        tensors = [g.x, *tracked, g.weight, g.bias, vector, vector, like(g.x)]

        def whole_forward(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
            return [*right.compare_statistics(problem, got, known), right.compare_y(problem, got[2], known[2])]

        return Task(tensors, (6, 7, 8, 1, 2, 3), whole_forward, (1, 2, 3))
    if name == "whole_backward":

        def whole_backward(got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Outcome]:
            return [*right.compare_parameters(problem, got, known), right.compare_dx(problem, got[2], known[2])]

        return Task([*read, vector, vector, like(g.x)], (6, 7, 8), whole_backward)
    if name == "combine_statistics":
        count, mean, squares = right.part_statistics(kernel)
        shift = mean.float() + 0.25
        partial = torch.stack((count.float(), shift, (mean - shift.double()).float(), squares.float()))
        return Task(
            [partial, *tracked, vector, vector], (4, 5, 1, 2, 3),
            lambda got, known: right.compare_statistics(problem, [*got[:2], got[0], *got[2:]], [*known[:2], known[0]]),
            (1, 2, 3),
        )  # fmt: skip
    partial = torch.stack([sums for sums, _ in right.part_sums(kernel)]).float()  # combine_gradients
    both = list(zip(right.coefficients(problem), right.coefficients(problem, sizes=True), strict=True))
    return Task(
        [partial, g.invstd, g.weight, vector, vector, torch.empty(2, problem.channels)], (3, 4, 5),
        lambda got, known: [
            *right.compare_parameters(problem, got, known),
            *(right.vector(got[2][i], *each, known[2][i]) for i, each in enumerate(both)),
        ],
    )  # fmt: skip


def elements_written(kernel: Kernel, groups: Iterable[Group]) -> int:
    """Return how many elements of what is written, and not updated, workgroups write."""
    problem, call, total = kernel.problem, kernel.call, 0
    samples, channels, pixels = (layout := calls.Layout.of(problem)).sizes

    def part(index: int, size: int, length: int) -> int:
        return max(0, min(size, length - index * size))

    for x, _, _ in groups:
        a, b = call.constants.get("BLOCK_A", 0), call.constants.get("BLOCK_B", 0)
        own = part(x, b if layout.last else 1, channels)  # channels of a program that adds
        if call.kernel in ("partial_statistics", "partial_gradients"):
            total += (4 if call.kernel == "partial_statistics" else 2) * own
        elif call.kernel in ("whole_forward", "whole_backward"):
            total += own * (2 + problem.rows)
        elif call.kernel in ("activate", "input_gradient"):
            across = -(-(channels if layout.last else pixels) // b)
            rows, columns = (samples, channels) if layout.last else (samples * channels, pixels)
            total += part(x // across, a, rows) * part(x % across, b, columns)
        else:
            total += (4 if call.kernel == "combine_gradients" else 2) * part(x, call.constants["BLOCK_C"], channels)
    return total
