"""Convolutions inside a workspace budget: the batch is cut first, then rows of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from ..engines.activations import IDENTITY, activate_in_place
from ..engines.chunking import budget_of_second_try, chunks, workspace
from .base import Algorithm, Bound, Grads, Wanted, add_bias
from .problem import ConvProblem, laid_out


def fitted(algorithm: Algorithm, problem: ConvProblem, budget: int) -> Bound:
    """Return the passes of an algorithm for a problem, each in at most `budget` bytes of workspace.

    Whether anything has to be cut is decided here, once. When memory runs out, a pass gets one smaller try.
    """
    if problem.activation != IDENTITY and not algorithm.activates:
        return _activated(problem, fitted(algorithm, problem.plain, budget))
    parts = _Chunked(algorithm, problem, budget)
    fits = workspace(algorithm, problem) <= budget
    first_forward, first_backward = algorithm.bound(problem) if fits else Bound(parts.forward, parts.backward)

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        try:
            return first_forward(x, weight, bias)
        except torch.cuda.OutOfMemoryError:
            pass  # outside of the handler the failed try's tensors are free
        return replace(parts, budget=budget_of_second_try(budget)).forward(x, weight, bias)

    def backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
        try:
            return first_backward(grad, x, weight, wanted)
        except torch.cuda.OutOfMemoryError:
            pass
        return replace(parts, budget=budget_of_second_try(budget)).backward(grad, x, weight, wanted)

    return Bound(forward, backward)


def _activated(problem: ConvProblem, plain: Bound) -> Bound:
    """Return the passes of a plain convolution with the activation computed in the memory of its result."""

    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = laid_out(plain.forward(x, weight, bias), problem.channels_last)
        return activate_in_place(y, problem.activation, problem.slope)

    return Bound(forward, plain.backward)


def smallest_workspace(algorithm: Algorithm, problem: ConvProblem) -> int:
    """Return what an algorithm takes for one row of one sample: chunking cannot get below that."""
    one = _with_batch(problem, 1)
    return min(workspace(algorithm, one), workspace(algorithm, _band(one, 1)))


def largest_workspace(algorithm: Algorithm, problem: ConvProblem, budget: int) -> int:
    """Return the workspace that a pass takes at most, once it has been cut to fit the budget."""
    whole = workspace(algorithm, problem)
    return whole if whole <= budget else min(whole, max(budget, smallest_workspace(algorithm, problem)))


@dataclass(frozen=True)
class _Chunked:
    """The passes of an algorithm, in parts where they do not fit.

    A band is some rows of a convolution's small side (its output; the input of a transposed one), and those that they
    meet on the large side, padding included.
    """

    algorithm: Algorithm
    problem: ConvProblem
    budget: int

    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self._fits(self.problem):
            return self.algorithm.forward(self.problem, x, weight, bias)
        return self._image(True, x, weight, bias)

    def backward(self, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, wanted: Wanted) -> Grads:
        if self._fits(self.problem):
            return self.algorithm.backward(self.problem, grad, x, weight, wanted)
        for_weight = self._grad_weight(grad, x) if wanted[1] else None
        return self._image(False, grad, weight) if wanted[0] else None, for_weight

    def _image(
        self, forward: bool, source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compute the output, or the gradient of the input."""

        def run(part: ConvProblem, source: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            if forward:
                return self.algorithm.forward(part, source, weight, bias)
            return self.algorithm.grad_input(part, source, weight)

        problem = self.problem
        shape = problem.output_shape if forward else problem.input_shape
        result = laid_out(torch.empty(shape, dtype=problem.dtype, device=source.device), problem.channels_last)
        for samples, part in self._samples():
            into, of = result[samples], source[samples]
            if not self._has_to_be_cut(part):
                into.copy_(run(part, of, bias))
            elif forward != problem.transposed:  # from the large side to the small one
                for band, small, met in self._bands(part):
                    into[:, :, small] = run(band, met.of(of), bias)
            else:
                add_bias(into.zero_(), bias)
                for band, small, met in self._bands(part):
                    met.add(into, run(band, of[:, :, small]))
        return result

    def _grad_weight(self, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        problem, algorithm = self.problem, self.algorithm
        # Partial weights are added in full precision, like the native kernels do inside.
        wide = torch.float32 if problem.dtype in (torch.float16, torch.bfloat16) else problem.dtype
        total = torch.zeros(problem.weight_shape, dtype=wide, device=grad.device)
        for samples, part in self._samples():
            if not self._has_to_be_cut(part):
                total += algorithm.grad_weight(part, grad[samples], x[samples])
            else:
                for band, small, met in self._bands(part):
                    if problem.transposed:
                        total += algorithm.grad_weight(band, met.of(grad[samples]), x[samples, :, small])
                    else:
                        total += algorithm.grad_weight(band, grad[samples, :, small], met.of(x[samples]))
        return total.to(problem.dtype)

    def _fits(self, problem: ConvProblem) -> bool:
        return workspace(self.algorithm, problem) <= self.budget

    def _has_to_be_cut(self, problem: ConvProblem) -> bool:
        """Return whether a problem does not fit whole, and bands of rows would take less."""
        one_row = workspace(self.algorithm, _band(problem, 1))
        return not self._fits(problem) and one_row < workspace(self.algorithm, problem)

    def _samples(self) -> Iterator[tuple[slice, ConvProblem]]:
        """Cut the batch into parts whose workspace fits, down to one sample."""
        one = workspace(self.algorithm, _with_batch(self.problem, 1))
        for samples in chunks(self.problem.batch, one, self.budget):
            yield samples, _with_batch(self.problem, samples.stop - samples.start)

    def _bands(self, problem: ConvProblem) -> Iterator[tuple[ConvProblem, slice, _RowsMet]]:
        """Cut the first spatial dimension into bands whose workspace fits, down to one row of the small side."""
        sizes = problem.input_size[0], problem.output_size[0]
        total, height = sizes if problem.transposed else sizes[::-1]
        step = total
        while step > 1 and not self._fits(_band(problem, step)):
            step = math.ceil(step / 2)
        for start in range(0, total, step):
            stop, first = min(start + step, total), start * problem.stride[0] - problem.padding[0]
            met = _RowsMet.between(first, first + _rows_met(problem, stop - start), height)
            yield _band(problem, stop - start), slice(start, stop), met


@dataclass(frozen=True)
class _RowsMet:
    """What a band meets of the large side: rows of the image, and how many of padding go before and after them."""

    inside: slice
    before: int
    after: int

    @classmethod
    def between(cls, first: int, end: int, height: int) -> _RowsMet:
        """Return the rows from `first`, which padding may make negative, to `end` of an image so high."""
        start = min(max(first, 0), height)
        stop = min(max(end, start), height)
        before = min(end - first, max(0, -first))
        return cls(slice(start, stop), before, end - first - before - (stop - start))

    def of(self, large: torch.Tensor) -> torch.Tensor:
        """Return the rows, with zeros for padding."""
        rows = large[:, :, self.inside]
        border = [0, 0] * (large.dim() - 3) + [self.before, self.after]
        return F.pad(rows, border) if self.before or self.after else rows

    def add(self, large: torch.Tensor, band: torch.Tensor) -> None:
        """Add a band to its rows, without what is padding."""
        large[:, :, self.inside] += band[:, :, self.before : band.shape[2] - self.after]


def _with_batch(problem: ConvProblem, batch: int) -> ConvProblem:
    return replace(problem, input_shape=(batch, *problem.input_shape[1:]))


def _rows_met(problem: ConvProblem, rows: int) -> int:
    """Return how many rows of the large side so many rows of the small side meet."""
    return (rows - 1) * problem.stride[0] + problem.dilation[0] * (problem.kernel[0] - 1) + 1


def _band(problem: ConvProblem, rows: int) -> ConvProblem:
    """Return the problem of `rows` rows of the small side; what padding it needs is part of its input."""
    height = rows if problem.transposed else _rows_met(problem, rows)
    return replace(
        problem,
        input_shape=(*problem.input_shape[:2], height, *problem.input_size[1:]),
        padding=(0, *problem.padding[1:]),
        output_padding=(0, *problem.output_padding[1:]),
    )
