"""The kernels of BatchNorm in the table of compiled kernels: which there are, what each is given, what should come out.

Statistics, activation and gradients are those of `yolo_rocm.norm.kernels`; all is compared with fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch

from tools.kernel import DTYPES, Kernel
from yolo_rocm.engines.layout import laid_out
from yolo_rocm.engines.triton.available import amd_family
from yolo_rocm.engines.triton.call import Call
from yolo_rocm.norm.kernels import calls
from yolo_rocm.norm.kernels.tiles import SIZES, Tile, tile
from yolo_rocm.norm.problem import LEAKY_RELU, SILU, NormProblem

Group = tuple[int, int, int]
PREFIX: Final = "norm "
EPS, MOMENTUM = 1e-3, 0.03
# The layers of the table, as in a network: a large one, a small one for whole channels, and one whose sizes are
# multiples of nothing, in parts.
_USUAL: Final = (8, 32, 40, 40)
_SMALL: Final = (4, 32, 20, 20)
_ODD: Final = {False: (5, 3, 37, 29), True: (2, 20, 9, 11)}
# Roundings to fp32 that a result may have lost, in units of its terms' magnitudes: all of it together, one element.
_ROUNDINGS, _OF_AN_ELEMENT = 8, 64


def is_norm(kernel: Kernel) -> bool:
    """Return whether a kernel of the table is one of these."""
    return kernel.name.startswith(PREFIX)


def curated_norms(target: str, dtype: str, channels_last: bool, odd: bool = False) -> Iterator[Kernel]:
    """Yield every kernel with every tile that a target is given; `odd` is another layer, to be run whole."""
    family = amd_family(target)
    assert family is not None
    own, full, count = DTYPES[dtype], torch.float32, torch.int64
    shape = _ODD[channels_last] if odd else _USUAL
    activation = (LEAKY_RELU, 0.1) if odd and dtype == "bf16" else (SILU, 0.0)
    problem = NormProblem(shape, own, "cuda:0", channels_last, True, True, *activation)
    settings = (MOMENTUM, EPS, True, True)

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
    yield made("known statistics", "128", calls.known_statistics(problem, EPS), (full,) * 4)


def odd_one(kernel: Kernel, target: str) -> Kernel:
    """Return a kernel of the table, with its tile, for the odd layer."""
    every = curated_norms(target, kernel.dtype, kernel.layout == "nhwc", odd=True)
    return next(each for each in every if each.name == kernel.name and each.tile in (kernel.tile, ""))


class Compared(NamedTuple):
    """What a kernel wrote, what it should have written, in units of what, and the rounding to half precision."""

    got: torch.Tensor
    exact: torch.Tensor
    magnitude: torch.Tensor
    rounding: float = 0.0
    smallest: float = 0.0  # normal number of that precision: below, roundings do not become smaller

    @property
    def error(self) -> float:
        """Relative error of all of it."""
        return float((self.got.double() - self.exact).norm() / self.magnitude.norm().clamp_min(1e-300))

    @property
    def allowed(self) -> float:
        """What it may be."""
        return _ROUNDINGS * torch.finfo(torch.float32).eps + self.rounding

    @property
    def wrong(self) -> int:
        """Elements that are further off than roundings explain."""
        eps = torch.finfo(torch.float32).eps
        most = _OF_AN_ELEMENT * eps * self.magnitude + self.rounding * self.exact.abs().clamp_min(self.smallest)
        return int(((self.got.double() - self.exact).abs() > most).sum() + self.got.isnan().sum())


Compare = Callable[[list[torch.Tensor], list[torch.Tensor]], list[Compared]]


@dataclass(frozen=True)
class NormTask:
    """Tensors of a kernel and what is to come out.

    Attributes:
        tensors: In the kernel's order; of those it writes, what they are before where it updates them, otherwise the
            shape.
        written: Places of what it writes.
        updated: Places of what it changes.
        compare: Takes those tensors afterwards, and which of their elements were written.
    """

    tensors: list[torch.Tensor]
    written: tuple[int, ...]
    updated: tuple[int, ...]
    compare: Compare


class _Given(NamedTuple):
    """A layer in fp64, but for what a kernel is given."""

    x: torch.Tensor
    grad: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor
    mean: torch.Tensor
    invstd: torch.Tensor
    batches: torch.Tensor


@lru_cache(maxsize=8)
def _given(problem: NormProblem) -> _Given:
    generator = torch.Generator().manual_seed(0)
    channels = problem.channels

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x = laid_out((drawn(*problem.shape) * 2 + 3 * drawn(1, channels, 1, 1)).to(problem.dtype), problem.channels_last)
    grad = laid_out(drawn(*problem.shape).to(problem.dtype), problem.channels_last)
    mean, variance = x.double().mean((0, 2, 3)), x.double().var((0, 2, 3), unbiased=False)
    weight, bias, running_mean, running_var = (drawn(channels) for _ in range(4))
    invstd = (variance + EPS).rsqrt().float()
    return _Given(
        x, grad, weight, bias, running_mean, running_var.abs() + 0.5, mean.float(), invstd, torch.tensor([41])
    )


def _cut(problem: NormProblem, each: Tile) -> calls.Parts:
    return calls.cut(problem, each, 32 if problem.shape == _USUAL else 4)


def task(kernel: Kernel) -> NormTask:
    """Return what a kernel is given."""
    problem: NormProblem = kernel.problem
    g, like = _given(problem), torch.empty_like
    read = [g.grad, g.x, g.mean, g.invstd, g.weight, g.bias]
    tracked, vector, name = [g.running_mean, g.running_var, g.batches], like(g.mean), kernel.call.kernel
    if name == "partial_statistics":
        partial = torch.empty(4, _parts(kernel), problem.channels)
        return NormTask([g.x, partial], (1,), (), lambda got, known: _compare_partials(kernel, got[0], known[0]))
    if name == "activate":
        return NormTask([*read[1:], like(g.x)], (5,), (), lambda got, known: [_compare_y(problem, got[0], known[0])])
    if name == "partial_gradients":
        partial = torch.empty(2, _parts(kernel), problem.channels)
        return NormTask([*read, partial], (6,), (), lambda got, known: _compare_sums(kernel, got[0], known[0]))
    if name == "input_gradient":
        coefficients = torch.stack(_coefficients(problem)).float()
        return NormTask(
            [*read, coefficients, like(g.x)], (7,), (), lambda got, known: [_compare_dx(problem, got[0], known[0])]
        )
    if name == "whole_forward":
        return NormTask(
            [g.x, *tracked, g.weight, g.bias, vector, vector, like(g.x)], (6, 7, 8, 1, 2, 3), (1, 2, 3),
            lambda got, known: [*_compare_statistics(problem, got, known), _compare_y(problem, got[2], known[2])],
        )  # fmt: skip
    if name == "whole_backward":
        return NormTask(
            [*read, vector, vector, like(g.x)], (6, 7, 8), (),
            lambda got, known: [*_compare_parameters(problem, got, known), _compare_dx(problem, got[2], known[2])],
        )  # fmt: skip
    if name == "known_statistics":
        exact = (g.running_mean.double(), (g.running_var.double() + EPS).rsqrt())
        return NormTask(
            [g.running_mean, g.running_var, vector, vector], (2, 3), (),
            lambda got, known: [_vector(got[i], exact[i], exact[i].abs(), known[i]) for i in range(2)],
        )  # fmt: skip
    if name == "combine_statistics":
        count, mean, squares = _part_statistics(kernel)
        shift = mean.float() + 0.25
        partial = torch.stack((count.float(), shift, (mean - shift.double()).float(), squares.float()))
        return NormTask(
            [partial, *tracked, vector, vector], (4, 5, 1, 2, 3), (1, 2, 3),
            lambda got, known: _compare_statistics(problem, [*got[:2], got[0], *got[2:]], [*known[:2], known[0]]),
        )  # fmt: skip
    if name == "combine_gradients":
        partial = torch.stack([sums for sums, _ in _part_sums(kernel)]).float()
        return NormTask(
            [partial, g.invstd, g.weight, vector, vector, torch.empty(2, problem.channels)], (3, 4, 5), (),
            lambda got, known: [
                *_compare_parameters(problem, got, known),
                *(_vector(got[2][i], c, m, known[2][i])
                  for i, (c, m) in enumerate(zip(_coefficients(problem), _coefficients(problem, True), strict=True))),
            ],
        )  # fmt: skip
    raise ValueError(f"no task for {name}")


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


def tensor_bytes(kernel: Kernel) -> int:
    """Return the bytes that a kernel reads and writes: each tensor once, by those that go over it twice, twice."""
    problem: NormProblem = kernel.problem
    whole = problem.rows * problem.channels * problem.dtype.itemsize
    passes = {
        "partial_statistics": 1, "activate": 2, "partial_gradients": 2, "input_gradient": 3, "whole_forward": 3,
        "whole_backward": 5,
    }  # fmt: skip
    parts = {"partial_statistics": 4, "partial_gradients": 2, "combine_statistics": 4, "combine_gradients": 2}
    of_parts = parts.get(kernel.call.kernel, 0) * 4 * problem.channels
    if of_parts:
        of_parts *= _parts(kernel)
    return passes.get(kernel.call.kernel, 0) * whole + of_parts + 16 * problem.channels


def _parts(kernel: Kernel) -> int:
    """Return how many parts a channel has."""
    if kernel.call.kernel.startswith("partial"):
        return int(kernel.call.grid[1])
    return int(kernel.call.numbers[1])


def _part_of(kernel: Kernel) -> torch.Tensor:
    """Return the part that each value of a channel belongs to: samples x pixels."""
    problem: NormProblem = kernel.problem
    batch, pixels = problem.shape[0], problem.pixels
    if kernel.call.kernel.startswith("combine"):  # of whichever parts
        return (torch.arange(problem.rows) % _parts(kernel)).view(batch, pixels)
    a, b = (int(kernel.call.constants[name]) for name in ("BLOCK_A", "BLOCK_B"))
    each = int(kernel.call.numbers[4])
    if problem.channels_last:
        return (torch.arange(problem.rows) // a // each).view(batch, pixels)
    tiles = torch.arange(batch)[:, None] // a * -(-pixels // b) + torch.arange(pixels)[None, :] // b
    return tiles // each


def _summed(kernel: Kernel, values: torch.Tensor) -> torch.Tensor:
    """Return the sums of (samples, channels, pixels) over parts: parts x channels."""
    part = _part_of(kernel).flatten()
    flat = values.transpose(0, 1).flatten(1).t()
    return torch.zeros(_parts(kernel), flat.shape[1], dtype=torch.float64).index_add_(0, part, flat)


def _part_statistics(kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = _given(kernel.problem).x.double().flatten(2)
    count = _summed(kernel, torch.ones_like(x))
    mean = _summed(kernel, x) / count
    part = _part_of(kernel)
    centred = x - mean[part].permute(0, 2, 1)
    return count, mean, _summed(kernel, centred * centred)


class _Terms(NamedTuple):
    """Of the passes, in fp64, each (samples, channels, pixels), with magnitudes of their terms."""

    z: torch.Tensor
    z_size: torch.Tensor
    y: torch.Tensor
    dz: torch.Tensor
    dz_size: torch.Tensor
    centred: torch.Tensor


@lru_cache(maxsize=4)
def _terms(problem: NormProblem) -> _Terms:
    g = _given(problem)
    by_channel = [each.double()[:, None] for each in (g.mean, g.invstd, g.weight, g.bias)]
    mean, invstd, weight, bias = by_channel
    centred = g.x.double().flatten(2) - mean
    size = (centred * invstd * weight).abs() + bias.abs()
    z = (centred * invstd * weight + bias).requires_grad_()
    y = torch.nn.functional.silu(z) if problem.activation == SILU else torch.nn.functional.leaky_relu(z, problem.slope)
    grad = g.grad.double().flatten(2)
    (dz,) = torch.autograd.grad(y, z, grad)
    return _Terms(z.detach(), size, y.detach(), dz, grad.abs() * (1 + size), centred)


def _part_sums(kernel: Kernel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    t = _terms(kernel.problem)
    pairs = ((t.dz, t.dz_size), (t.dz * t.centred, t.dz_size * t.centred.abs()))
    return [(_summed(kernel, terms), _summed(kernel, sizes)) for terms, sizes in pairs]


def _totals(problem: NormProblem, sizes: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    t = _terms(problem)
    dz, centred = (t.dz_size, t.centred.abs()) if sizes else (t.dz, t.centred)
    return dz.sum((0, 2)), (dz * centred).sum((0, 2))


def _coefficients(problem: NormProblem, sizes: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    g, (total, product) = _given(problem), _totals(problem, sizes)
    weight, invstd = g.weight.double(), g.invstd.double()
    weight = weight.abs() if sizes else weight
    return weight * invstd * total / problem.rows, weight * invstd**3 * product / problem.rows


def _rounding(problem: NormProblem) -> tuple[float, float]:
    limits = torch.finfo(problem.dtype)
    return (0.0, 0.0) if problem.dtype == torch.float32 else (limits.eps / 2, limits.tiny)


def _vector(got: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, known: torch.Tensor) -> Compared:
    return Compared(got[known], exact[known], size[known])


def _compare_partials(kernel: Kernel, got: torch.Tensor, known: torch.Tensor) -> list[Compared]:
    count, mean, squares = _part_statistics(kernel)
    found = got.double()
    return [
        _vector(got[0], count, count * 0 + 1e-9, known[0]),
        _vector(found[1] + found[2], mean, mean.abs() + (squares / count).sqrt(), known[1] & known[2]),
        _vector(got[3], squares, squares, known[3]),
    ]


def _compare_sums(kernel: Kernel, got: torch.Tensor, known: torch.Tensor) -> list[Compared]:
    return [_vector(got[i], *both, known[i]) for i, both in enumerate(_part_sums(kernel))]


def _compare_y(problem: NormProblem, got: torch.Tensor, known: torch.Tensor) -> Compared:
    t, flags = _terms(problem), known.flatten(2)
    return Compared(got.flatten(2)[flags], t.y[flags], (t.z_size + t.y.abs())[flags], *_rounding(problem))


def _compare_dx(problem: NormProblem, got: torch.Tensor, known: torch.Tensor) -> Compared:
    g, t, flags = _given(problem), _terms(problem), known.flatten(2)
    scale = (g.weight.double() * g.invstd.double())[:, None]
    first, second = (each[:, None] for each in _coefficients(problem))
    exact = t.dz * scale - first - t.centred * second
    sizes = [each[:, None] for each in _coefficients(problem, True)]
    size = t.dz_size * scale.abs() + sizes[0] + t.centred.abs() * sizes[1]
    return Compared(got.flatten(2)[flags], exact[flags], size[flags], *_rounding(problem))


def _compare_parameters(problem: NormProblem, got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Compared]:
    """Compare the gradients of weight and bias, the first two."""
    invstd = _given(problem).invstd.double()
    (total, product), (total_size, product_size) = _totals(problem), _totals(problem, True)
    return [
        _vector(got[0], product * invstd, product_size * invstd, known[0]),
        _vector(got[1], total, total_size, known[1]),
    ]


def _compare_statistics(problem: NormProblem, got: list[torch.Tensor], known: list[torch.Tensor]) -> list[Compared]:
    """Compare mean, invstd, (anything), running mean and variance, batches, where the first were written."""
    g = _given(problem)
    x = g.x.double()
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    size = mean.abs() + variance.sqrt()
    kept = 1 - MOMENTUM
    exact = kept * g.running_mean.double() + MOMENTUM * mean
    unbiased = variance * problem.rows / (problem.rows - 1)
    flags: Any = known[0]
    counted = got[5] - g.batches - 1
    return [
        _vector(got[0], mean, size, known[0]),
        _vector(got[1], (variance + EPS).rsqrt(), (variance + EPS).rsqrt(), known[1]),
        _vector(got[3], exact, g.running_mean.double().abs() + size, flags),
        _vector(got[4], kept * g.running_var.double() + MOMENTUM * unbiased, g.running_var.double() + variance, flags),
        Compared(counted.float(), torch.zeros(1, dtype=torch.float64), torch.full((1,), 1e-9, dtype=torch.float64)),
    ]
