"""Keep a pass inside a memory budget: the batch is cut first, then rows; out of memory gets one smaller try."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F

from ..conv.algorithms import Algorithm
from ..conv.algorithms.base import Bound, Grads
from ..conv.problem import ConvProblem

# After an out-of-memory error the next try may use this share of the budget.
_SECOND_TRY = 8


@lru_cache(maxsize=8192)
def _workspace(algorithm: Algorithm, problem: ConvProblem) -> int:
    return algorithm.workspace_bytes(problem)


def forward(
    algorithm: Algorithm,
    problem: ConvProblem,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    budget: int,
    whole: Bound | None = None,
) -> torch.Tensor:
    """Compute the output in at most `budget` bytes of workspace; `whole`: the caller knows that nothing is split."""
    try:
        if whole is not None:
            return whole.forward(x, weight, bias)
        return _forward(algorithm, problem, x, weight, bias, budget)
    except torch.cuda.OutOfMemoryError:
        pass  # outside of the handler, so that the failed try's tensors are free
    torch.cuda.empty_cache()
    return _forward(algorithm, problem, x, weight, bias, budget // _SECOND_TRY)


def backward(
    algorithm: Algorithm,
    problem: ConvProblem,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: tuple[bool, bool],
    budget: int,
    whole: Bound | None = None,
) -> Grads:
    """Compute the wanted gradients in at most `budget` bytes of workspace each; `whole` as in `forward`."""
    try:
        if whole is not None:
            return whole.backward(grad, x, weight, wanted)
        return _backward(algorithm, problem, grad, x, weight, wanted, budget)
    except torch.cuda.OutOfMemoryError:
        pass
    torch.cuda.empty_cache()
    return _backward(algorithm, problem, grad, x, weight, wanted, budget // _SECOND_TRY)


def _forward(
    algorithm: Algorithm,
    problem: ConvProblem,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    budget: int,
) -> torch.Tensor:
    if _workspace(algorithm, problem) <= budget:
        return algorithm.forward(problem, x, weight, bias)
    y = _empty(problem, problem.output_shape, x)
    for samples in _batches(algorithm, problem, budget):
        part = replace(problem, input_shape=(samples.stop - samples.start, *problem.input_shape[1:]))
        if _whole(algorithm, part, budget):
            y[samples] = algorithm.forward(part, x[samples], weight, bias)
            continue
        if not problem.transposed:
            for rows in _rows(algorithm, part, budget):
                y[samples, :, rows.small] = algorithm.forward(rows.problem, rows.cut(x[samples]), weight, bias)
            continue
        y[samples] = 0 if bias is None else bias.view(-1, *[1] * len(problem.kernel))
        for rows in _rows(algorithm, part, budget):
            rows.add(y[samples], algorithm.forward(rows.problem, x[samples, :, rows.small], weight, None))
    return y


def _backward(
    algorithm: Algorithm,
    problem: ConvProblem,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    wanted: tuple[bool, bool],
    budget: int,
) -> Grads:
    if _workspace(algorithm, problem) <= budget:
        return algorithm.backward(problem, grad, x, weight, wanted)
    grad_input = _empty(problem, problem.input_shape, grad) if wanted[0] else None
    # Partial weights are added in full precision, like the native kernels do inside.
    wide = torch.float32 if problem.dtype in (torch.float16, torch.bfloat16) else problem.dtype
    grad_weight = torch.zeros(problem.weight_shape, dtype=wide, device=grad.device) if wanted[1] else None
    for samples in _batches(algorithm, problem, budget):
        part = replace(problem, input_shape=(samples.stop - samples.start, *problem.input_shape[1:]))
        gx = None if grad_input is None else grad_input[samples]
        if _whole(algorithm, part, budget):
            first, second = algorithm.backward(part, grad[samples], x[samples], weight, wanted)
            if gx is not None and first is not None:
                gx.copy_(first)
            if grad_weight is not None and second is not None:
                grad_weight += second
            continue
        _backward_rows(algorithm, part, (grad[samples], x[samples], weight), gx, grad_weight, budget)
    return grad_input, None if grad_weight is None else grad_weight.to(problem.dtype)


def _backward_rows(
    algorithm: Algorithm,
    problem: ConvProblem,
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    grad_input: torch.Tensor | None,
    grad_weight: torch.Tensor | None,
    budget: int,
) -> None:
    grad, x, weight = operands
    if grad_input is not None and not problem.transposed:
        grad_input.zero_()
    for rows in _rows(algorithm, problem, budget):
        if problem.transposed:
            small, large = x[:, :, rows.small], rows.cut(grad)
            pair = (large, small)
        else:
            small, large = grad[:, :, rows.small], rows.cut(x)
            pair = (small, large)
        if grad_weight is not None:
            grad_weight += algorithm.grad_weight(rows.problem, *pair)
        if grad_input is not None:
            part = algorithm.grad_input(rows.problem, pair[0], weight)
            if problem.transposed:
                grad_input[:, :, rows.small] = part
            else:
                rows.add(grad_input, part)


def _batches(algorithm: Algorithm, problem: ConvProblem, budget: int) -> Iterator[slice]:
    """Cut the batch into parts whose workspace fits, down to one sample."""
    one = _workspace(algorithm, replace(problem, input_shape=(1, *problem.input_shape[1:])))
    step = max(1, min(problem.batch, budget // max(1, one)))
    for start in range(0, problem.batch, step):
        yield slice(start, min(start + step, problem.batch))


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
        """Return the rows of the large side in the band, and how many rows of padding lie before and after them."""
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
    """Tell whether a problem is run whole: because it fits, or because bands of rows would take no less."""
    workspace = _workspace(algorithm, problem)
    return workspace <= budget or _workspace(algorithm, _band(problem, 1)) >= workspace


def smallest_workspace(algorithm: Algorithm, problem: ConvProblem) -> int:
    """Return what an algorithm takes for one row of one sample: less cannot be had by splitting."""
    one = replace(problem, input_shape=(1, *problem.input_shape[1:]))
    return min(_workspace(algorithm, one), _workspace(algorithm, _band(one, 1)))


def largest_workspace(algorithm: Algorithm, problem: ConvProblem, budget: int) -> int:
    """Return the workspace that a pass takes at most, once it has been split to fit the budget."""
    whole = _workspace(algorithm, problem)
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
    while step > 1 and _workspace(algorithm, _band(problem, step)) > budget:
        step = math.ceil(step / 2)
    for start in range(0, total, step):
        stop = min(start + step, total)
        count = (stop - start - 1) * problem.stride[0] + _reach(problem)
        first = start * problem.stride[0]
        yield _Rows(_band(problem, stop - start), slice(start, stop), first, count, problem.padding[0], size)


def _empty(problem: ConvProblem, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    y = torch.empty(shape, dtype=problem.dtype, device=like.device)
    if problem.channels_last and y.dim() == 4:
        return y.contiguous(memory_format=torch.channels_last)
    return y
