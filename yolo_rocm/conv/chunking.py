"""Convolutions inside a workspace budget: the batch is cut first, then rows of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F

from ..engines.chunking import chunks, second_try, workspace
from .algorithms.base import Algorithm, Bound, Grads, add_bias
from .problem import ConvProblem, laid_out


def fitted(algorithm: Algorithm, problem: ConvProblem, budget: int) -> Bound:
    """Return the passes of an algorithm for a problem, each in at most `budget` bytes of workspace.

    Whether anything has to be cut is decided here, once. When memory runs out, a pass gets one smaller try.
    """
    if workspace(algorithm, problem) <= budget:
        whole_forward, whole_backward = algorithm.bound(problem)
    else:
        whole_forward = partial(_forward, algorithm, problem, budget)
        whole_backward = partial(_backward, algorithm, problem, budget)

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        try:
            return whole_forward(x, weight, bias)
        except torch.cuda.OutOfMemoryError:
            pass  # outside of the handler the failed try's tensors are free
        return second_try(lambda smaller: _forward(algorithm, problem, smaller, x, weight, bias), budget)

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: tuple[bool, bool]) -> Grads:
        try:
            return whole_backward(grad, x, weight, wanted)
        except torch.cuda.OutOfMemoryError:
            pass
        return second_try(lambda smaller: _backward(algorithm, problem, smaller, grad, x, weight, wanted), budget)

    return Bound(forward, backward)


def _forward(
    algorithm: Algorithm,
    problem: ConvProblem,
    budget: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    if workspace(algorithm, problem) <= budget:
        return algorithm.forward(problem, x, weight, bias)
    return _image(algorithm, problem, budget, True, x, weight, bias)


def _backward(
    algorithm: Algorithm,
    problem: ConvProblem,
    budget: int,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: tuple[bool, bool],
) -> Grads:
    if workspace(algorithm, problem) <= budget:
        return algorithm.backward(problem, grad, x, weight, wanted)
    for_weight = _grad_weight(algorithm, problem, budget, grad, x) if wanted[1] else None
    return _image(algorithm, problem, budget, False, grad, weight) if wanted[0] else None, for_weight


def _image(
    algorithm: Algorithm,
    problem: ConvProblem,
    budget: int,
    forward: bool,
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the output, or the gradient of the input, in parts."""

    def run(part: ConvProblem, source: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return algorithm.forward(part, source, weight, bias) if forward else algorithm.grad_input(part, source, weight)

    gathers = forward != problem.transposed  # rows of the result are read off the source; otherwise added to the result
    shape = problem.output_shape if forward else problem.input_shape
    result = laid_out(torch.empty(shape, dtype=problem.dtype, device=source.device), problem.channels_last)
    for samples, part in _samples(algorithm, problem, budget):
        into, of = result[samples], source[samples]
        if _whole(algorithm, part, budget):
            into.copy_(run(part, of, bias))
        elif gathers:
            for rows in _rows(algorithm, part, budget):
                into[:, :, rows.small] = run(rows.problem, rows.cut(of), bias)
        else:
            into.zero_()
            for rows in _rows(algorithm, part, budget):
                rows.add(into, run(rows.problem, of[:, :, rows.small]))
            add_bias(into, bias)
    return result


def _grad_weight(
    algorithm: Algorithm, problem: ConvProblem, budget: int, grad: torch.Tensor, x: torch.Tensor
) -> torch.Tensor:
    # Partial weights are added in full precision, like the native kernels do inside.
    wide = torch.float32 if problem.dtype in (torch.float16, torch.bfloat16) else problem.dtype
    total = torch.zeros(problem.weight_shape, dtype=wide, device=grad.device)
    for samples, part in _samples(algorithm, problem, budget):
        g, image = grad[samples], x[samples]
        if _whole(algorithm, part, budget):
            total += algorithm.grad_weight(part, g, image)
            continue
        for rows in _rows(algorithm, part, budget):
            if problem.transposed:
                total += algorithm.grad_weight(rows.problem, rows.cut(g), image[:, :, rows.small])
            else:
                total += algorithm.grad_weight(rows.problem, g[:, :, rows.small], rows.cut(image))
    return total.to(problem.dtype)


def _samples(algorithm: Algorithm, problem: ConvProblem, budget: int) -> Iterator[tuple[slice, ConvProblem]]:
    """Cut the batch into parts whose workspace fits, down to one sample."""
    for samples in chunks(problem.batch, workspace(algorithm, _with_batch(problem, 1)), budget):
        yield samples, _with_batch(problem, samples.stop - samples.start)


def _with_batch(problem: ConvProblem, batch: int) -> ConvProblem:
    return replace(problem, input_shape=(batch, *problem.input_shape[1:]))


@dataclass(frozen=True)
class _Rows:
    """A band of a convolution's small side (output; input of a transposed one) and what it meets on the large side."""

    problem: ConvProblem
    small: slice
    first: int  # large side, in coordinates that begin before the padding
    count: int
    padding: int
    size: int

    def _inside(self) -> tuple[slice, int, int]:
        """Return the rows of the large side in the band, and how many rows of padding are before and after them."""
        start = min(max(self.first - self.padding, 0), self.size)
        stop = min(max(self.first - self.padding + self.count, start), self.size)
        before = min(self.count, max(0, self.padding - self.first))
        return slice(start, stop), before, self.count - before - (stop - start)

    def cut(self, large: torch.Tensor) -> torch.Tensor:
        """Return the band of the large side, with zeros where it reaches into the padding."""
        rows, before, after = self._inside()
        border = [0, 0] * (large.dim() - 3) + [before, after]
        return F.pad(large[:, :, rows], border) if before or after else large[:, :, rows]

    def add(self, large: torch.Tensor, band: torch.Tensor) -> None:
        """Add a band to the large side, without the part that reaches into the padding."""
        rows, before, after = self._inside()
        large[:, :, rows] += band[:, :, before : self.count - after]


def _whole(algorithm: Algorithm, problem: ConvProblem, budget: int) -> bool:
    """Return whether a problem is run whole: because it fits, or because bands of rows would take no less."""
    taken = workspace(algorithm, problem)
    return taken <= budget or workspace(algorithm, _band(problem, 1)) >= taken


def smallest_workspace(algorithm: Algorithm, problem: ConvProblem) -> int:
    """Return what an algorithm takes for one row of one sample: chunking cannot get below that."""
    one = _with_batch(problem, 1)
    return min(workspace(algorithm, one), workspace(algorithm, _band(one, 1)))


def largest_workspace(algorithm: Algorithm, problem: ConvProblem, budget: int) -> int:
    """Return the workspace that a pass takes at most, once it has been cut to fit the budget."""
    whole = workspace(algorithm, problem)
    return whole if whole <= budget else min(whole, max(budget, smallest_workspace(algorithm, problem)))


def _band(problem: ConvProblem, rows: int) -> ConvProblem:
    """Return the problem of `rows` rows of the small side; what padding it needs is part of its input."""
    tall = rows if problem.transposed else (rows - 1) * problem.stride[0] + _reach(problem)
    return replace(
        problem,
        input_shape=(*problem.input_shape[:2], tall, *problem.input_size[1:]),
        padding=(0, *problem.padding[1:]),
        output_padding=(0, *problem.output_padding[1:]),
    )


def _reach(problem: ConvProblem) -> int:
    """Return the rows of the large side that one row of the small side meets."""
    return problem.dilation[0] * (problem.kernel[0] - 1) + 1


def _rows(algorithm: Algorithm, problem: ConvProblem, budget: int) -> Iterator[_Rows]:
    """Cut the first spatial dimension into bands whose workspace fits, down to one row."""
    total = problem.input_size[0] if problem.transposed else problem.output_size[0]
    size = problem.output_size[0] if problem.transposed else problem.input_size[0]
    step = total
    while step > 1 and workspace(algorithm, _band(problem, step)) > budget:
        step = math.ceil(step / 2)
    for start in range(0, total, step):
        stop = min(start + step, total)
        count = (stop - start - 1) * problem.stride[0] + _reach(problem)
        first = start * problem.stride[0]
        yield _Rows(_band(problem, stop - start), slice(start, stop), first, count, problem.padding[0], size)
