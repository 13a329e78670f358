"""Algorithms built on one function, a correlation with any padding on each side: grad-input is a correlation too."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch

from ...engines.devices import outside_capture
from ..base import Algorithm, add_bias, compute_dtype
from ..problem import ConvProblem

Pair = tuple[int, int]
# A merged grad-input may multiply with this many times the kernel's own taps before phase by phase is better.
_MOST_WASTE = 2.0


class Window(NamedTuple):
    """What a correlation reads for each pixel of its result, in H and W.

    Attributes:
        kernel: Taps.
        stride: Step from pixel to pixel.
        pads: Zeros (before, after) the image; never negative.
        dilation: Distance of taps.
    """

    kernel: Pair
    stride: Pair
    pads: tuple[Pair, Pair]
    dilation: Pair

    @classmethod
    def of(cls, problem: ConvProblem) -> Window:
        """Return that of a forward pass."""
        (ph, pw), pairs = problem.padding, (problem.kernel, problem.stride, problem.dilation)
        kernel, stride, dilation = ((first, second) for first, second in pairs)
        return cls(kernel, stride, ((ph, ph), (pw, pw)), dilation)

    def padded_size(self, x: torch.Tensor) -> Pair:
        """Return height and width of (samples, channels, H, W) with its padding."""
        height, width = (size + sum(pads) for size, pads in zip(x.shape[2:], self.pads, strict=True))
        return height, width

    def output_size(self, x: torch.Tensor) -> Pair:
        """Return height and width of the result for (samples, channels, H, W)."""
        sizes = zip(self.padded_size(x), self.kernel, self.stride, self.dilation, strict=True)
        height, width = ((size - d * (k - 1) - 1) // s + 1 for size, k, s, d in sizes)
        return height, width


class Correlating(Algorithm):
    """Forward and grad-input from `correlate`; two spatial dimensions, no groups.

    grad-input of a strided convolution falls into `stride * stride` phases of the input, each an ordinary correlation
    of the gradient with every stride-th tap of the flipped kernel. Small kernels do all phases in one correlation,
    whose output channels are those of phase after phase, and shuffle them into place; others go one by one.
    """

    @abstractmethod
    def correlate(self, x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
        """Correlate (samples, in, H, W) with (out, in, kh, kw)."""

    @abstractmethod
    def correlate_gradient(self, grad: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
        """Return the gradient of the kernel of `correlate`, (out, in, kh, kw), from that of its result."""

    def forward(
        self, problem: ConvProblem, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Compute the output."""
        dtype = compute_dtype(problem)
        y = self.correlate(x.to(dtype), weight.to(dtype), Window.of(problem))
        return add_bias(y, None if bias is None else bias.to(dtype)).to(problem.dtype)

    def grad_weight(self, problem: ConvProblem, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the weight."""
        dtype = compute_dtype(problem)
        return self.correlate_gradient(grad.to(dtype), x.to(dtype), Window.of(problem)).to(problem.dtype)

    def grad_input(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the input."""
        dtype = compute_dtype(problem)
        grad, weight = grad.to(dtype), weight.to(dtype).transpose(0, 1)
        if max(problem.stride) == 1:
            (rows,), (columns,) = (_phases(problem, axis) for axis in (0, 1))
            return self._phase(grad, weight, rows, columns).to(problem.dtype)
        if max(problem.dilation) == 1 and _waste(problem) <= _MOST_WASTE:
            return self._merged(problem, grad, weight).to(problem.dtype)
        out = torch.empty(problem.input_shape, dtype=problem.dtype, device=grad.device)
        out = out.contiguous(memory_format=torch.channels_last) if problem.channels_last else out
        for rows, columns in itertools.product(_phases(problem, 0), _phases(problem, 1)):
            place = out[:, :, rows.start :: problem.stride[0], columns.start :: problem.stride[1]]
            if rows.taps and columns.taps:
                place.copy_(self._phase(grad, weight, rows, columns))
            else:
                place.zero_()
        return out

    def _merged(self, problem: ConvProblem, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """All phases in one correlation; `weight` is (in, out, kh, kw)."""
        rows, columns = _merge(problem, 0), _merge(problem, 1)
        (sh, sw), channels = problem.stride, problem.in_channels
        taps = _gather(weight, rows, columns).permute(2, 0, 1, 3, 4)  # (phases, in, out, T, T)
        y = self._stride_one(grad, taps.flatten(0, 1), rows, columns, (1, 1))
        phases = y.reshape(problem.batch, sh, sw, channels, rows.length, columns.length)
        cells = phases.permute(0, 3, 4, 1, 5, 2)  # (samples, in, t, sh, u, sw)
        full = cells.reshape(problem.batch, channels, rows.length * sh, columns.length * sw)
        return full[:, :, : problem.input_size[0], : problem.input_size[1]]

    def _phase(self, grad: torch.Tensor, weight: torch.Tensor, rows: _Phase, columns: _Phase) -> torch.Tensor:
        taps = weight[:, :, rows.first :: rows.step, columns.first :: columns.step].flip(2, 3)
        return self._stride_one(grad, taps, rows, columns, (rows.dilation, columns.dilation))

    def _stride_one(
        self, grad: torch.Tensor, taps: torch.Tensor, rows: _Phase | _Merged, columns: _Phase | _Merged, dilation: Pair
    ) -> torch.Tensor:
        # Rows of the gradient that no pixel of the phase sees are cut off, so that pads are never negative.
        seen = grad[:, :, rows.cut[0] : grad.shape[2] - rows.cut[1], columns.cut[0] : grad.shape[3] - columns.cut[1]]
        kernel = (taps.shape[2], taps.shape[3])
        return self.correlate(seen, taps, Window(kernel, (1, 1), (rows.pads, columns.pads), dilation))


@dataclass(frozen=True)
class _Phase:
    """Pixels `start, start + stride, ...` of one input axis: which taps reach them, and how the gradient is padded."""

    start: int
    first: int
    step: int
    taps: int
    dilation: int
    pads: Pair
    cut: Pair


def _phases(problem: ConvProblem, axis: int) -> list[_Phase]:
    """Return the phases of one axis.

    Input pixel h takes tap k of output o where h + padding = o * stride + k * dilation. With h = start + stride * t the
    fitting taps are every (stride / g)-th, g = gcd(stride, dilation), and their outputs are dilation / g apart.
    """
    stride, padding, dilation = problem.stride[axis], problem.padding[axis], problem.dilation[axis]
    size, kernel, outputs = problem.input_size[axis], problem.kernel[axis], problem.output_size[axis]
    common = math.gcd(stride, dilation)
    step, apart = stride // common, dilation // common
    result = []
    for start in range(min(stride, size)):
        fitting = [k for k in range(min(step, kernel)) if (start + padding - k * dilation) % stride == 0]
        length = -(-(size - start) // stride)
        first = fitting[0] if fitting else kernel
        taps = len(range(first, kernel, step))
        newest = (start + padding - first * dilation) // stride  # output of tap `first` for t = 0
        before = (taps - 1) * apart - newest
        after = length - 1 + newest - (outputs - 1)
        if not taps or -before >= outputs or -after >= outputs:  # no tap fits, or all outputs of those that do are cut
            result.append(_Phase(start, 0, step, 0, apart, (0, 0), (0, 0)))
            continue
        pads, cut = (max(before, 0), max(after, 0)), (max(-before, 0), max(-after, 0))
        result.append(_Phase(start, first, step, taps, apart, pads, cut))
    return result


@dataclass(frozen=True)
class _Merged:
    """All phases of one axis at once: for each phase and window position the kernel tap, or None."""

    taps: tuple[tuple[int | None, ...], ...]
    length: int
    pads: Pair
    cut: Pair


def _merge(problem: ConvProblem, axis: int) -> _Merged:
    """Return the windows of all phases of an axis as one; without dilation."""
    stride, padding = problem.stride[axis], problem.padding[axis]
    size, kernel, outputs = problem.input_size[axis], problem.kernel[axis], problem.output_size[axis]
    # Phase `start` meets tap k in output t + (start + padding - k) / stride, where that is whole.
    offsets = [
        {(start + padding - k) // stride: k for k in range(kernel) if (start + padding - k) % stride == 0}
        for start in range(stride)
    ]
    lowest = min(offset for phase in offsets for offset in phase)
    highest = max(offset for phase in offsets for offset in phase)
    taps = tuple(tuple(phase.get(offset) for offset in range(lowest, highest + 1)) for phase in offsets)
    length = -(-size // stride)
    before, after = -lowest, length - 1 + highest - (outputs - 1)
    return _Merged(taps, length, (max(before, 0), max(after, 0)), (max(-before, 0), max(-after, 0)))


def _waste(problem: ConvProblem) -> float:
    """Return multiplications of a merged grad-input over those needed."""
    windows = (len(merged.taps) * len(merged.taps[0]) for merged in (_merge(problem, 0), _merge(problem, 1)))
    return math.prod(windows) / math.prod(problem.kernel)


def _gather(weight: torch.Tensor, rows: _Merged, columns: _Merged) -> torch.Tensor:
    """Return (in, out, phases, T, T) by one lookup in the kernel's taps and a zero."""
    in_channels, out_channels, kh, kw = weight.shape
    padded = weight.new_zeros(in_channels, out_channels, kh * kw + 1)
    padded[..., :-1].copy_(weight.flatten(2))
    index = _tap_numbers(rows.taps, columns.taps, kh, kw, weight.device)
    shape = (len(rows.taps) * len(columns.taps), len(rows.taps[0]), len(columns.taps[0]))
    return padded.index_select(2, index).view(in_channels, out_channels, *shape)


@cache
def _tap_numbers(
    rows: tuple[tuple[int | None, ...], ...],
    columns: tuple[tuple[int | None, ...], ...],
    kh: int,
    kw: int,
    device: torch.device,
) -> torch.Tensor:
    """Return for (row phase, column phase, row, column) the flat number of its tap; kh * kw where there is none."""
    numbers = [
        kh * kw if i is None or j is None else i * kw + j
        for row, column in itertools.product(rows, columns)
        for i, j in itertools.product(row, column)
    ]
    return outside_capture(device, partial(_long_lived, numbers, device))


def _long_lived(numbers: list[int], device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):  # cached for training too, whatever runs first
        return torch.tensor(numbers, device=device)
