"""What the functions of `functions.c` are called with: awkward values first, then drawn ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
# Whole numbers about every power of two that an instruction treats in its own way.
_INTS: Final = (0, 1, 2, 3, 7, 31, 32, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xFFFFFF, 0x1000000, 0x1000001,
                0x7FFFFFFF, 0x80000000, 0x80000001, 0xAAAAAAAA, 0xFFFFFFFE, 0xFFFFFFFF)  # fmt: skip
# Zeros, denormals, ties and limits of fp16 and bf16, limits of integers, infinities and NaN.
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 0.1, 1 / 3, 255.5, 65504.0, 65519.99, 65520.0, 1e-45,
                  -1e-40, 1.1754944e-38, 2**-14 - 2**-25, 2**-24, 2**-25, 3 * 2**-26, 1 + 2**-11, 1 + 3 * 2**-11,
                  1 + 2**-8, 1 + 3 * 2**-8, 8388607.5, 16777217.0, 2147483520.0, -2147483648.0, 4294967040.0,
                  3.4028235e38, -3.4028235e38, float("inf"), float("-inf"), float("nan"))  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One launch: arguments in the kernel's order, and which of them are results."""

    arguments: tuple[Array | np.generic, ...]
    results: tuple[int, ...]
    groups: tuple[int, int, int]
    threads: int = 64


def cases() -> dict[str, Case]:
    """Return the launch of every function."""
    return {name: make() for name, make in _CASES.items()}


def outputs(case: Case, after: Iterable[Array]) -> list[Array]:
    """Return results with every NaN the same: which NaN an operation makes is no part of the comparison."""
    alike = []
    for index, made in zip(case.results, after, strict=True):
        before = case.arguments[index]
        assert isinstance(before, np.ndarray)
        made = made.view(before.dtype).reshape(before.shape).copy()
        if made.dtype.kind == "f":
            made[np.isnan(made)] = np.nan
        alike.append(made.view(f"u{made.dtype.itemsize}"))
    return alike


def _draw(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def _words(name: str, count: int, dtype: type = np.uint32) -> Array:
    bits = 8 * np.dtype(dtype).itemsize
    return _draw(name).integers(0, 2**bits, count, dtype=np.uint64).astype(dtype)


def _pairs(
    name: str, awkward: tuple[float, ...] | tuple[int, ...], dtype: type, drawn: Array, count: int
) -> list[Array]:
    """Return `count` columns: every pair of awkward values, the third column shuffled, then drawn values."""
    values = np.array(awkward, dtype)
    first, second = (axis.ravel() for axis in np.meshgrid(values, values))
    columns = [first, second, _draw(name).permutation(second)][:count]
    return [np.concatenate([column, part]) for column, part in zip(columns, np.array_split(drawn, count), strict=True)]


def _integers(name: str, slots: int) -> Case:
    drawn = _words(name, 97 * 2) >> _draw(name).integers(0, 32, 97 * 2).astype(np.uint32)
    kept = tuple(_INTS[::2]) if slots > 10 else _INTS
    return _elements(_pairs(name, kept, np.uint32, drawn, 2), np.uint32, slots)


def _drawn_floats(name: str, count: int) -> Array:
    """Return numbers made of drawn bits alone, the same on every machine."""
    fraction = _draw(name).integers(-(2**24), 2**24, count)
    return np.ldexp(fraction.astype(np.float32), _draw(name + " too").integers(-36, -10, count)).astype(np.float32)


def _reals(name: str, slots: int, columns: int, result: type = np.float32) -> Case:
    values = tuple(np.array(_FLOATS).astype(np.float32).tolist())
    drawn = _drawn_floats(name, 61 * columns)
    if columns == 1:
        ties = np.arange(-9, 9, dtype=np.float32) / np.float32(2)
        made = [np.concatenate([np.array(values, np.float32), ties, drawn])]
    else:
        made = _pairs(name, values[::2] if slots > 3 else values, np.float32, drawn, columns)
    return _elements(made, result, slots)


def _elements(columns: list[Array], result: type, slots: int) -> Case:
    count = len(columns[0])
    out = np.zeros(slots * count, result)
    return Case((*columns, out, np.uint32(count)), (len(columns),), (-(-count // 64), 1, 1))


def _numbers_only(case: Case) -> Case:
    """Drop the rows with a NaN or with two zeros: C does not say what the minimum of those is."""
    columns = [np.asarray(column) for column in case.arguments[:3]]
    keep = ~np.any(np.isnan(columns), axis=0) & (np.sum(np.equal(columns, 0), axis=0) < 2)
    # a * b is compared with 6 there: not inf * 0 either.
    with np.errstate(over="ignore", invalid="ignore"):
        keep &= ~np.isnan(columns[0] * columns[1])
    slots = len(np.asarray(case.arguments[3])) // len(columns[0])
    return _elements([column[keep] for column in columns], np.float32, slots)


def _scalars() -> Case:
    values = np.concatenate([np.array(_INTS, np.uint32), _words("scalars", 10)])
    groups = len(values) // 2
    out = np.zeros(groups * 64, np.uint32)
    arguments = (values, out, np.uint32(len(values)), np.uint64(0x123456789ABCDEF0), np.int32(-1234567))
    return Case(arguments, (1,), (groups, 1, 1))


def _scaled() -> Case:
    values = np.array(_FLOATS, np.float32)
    by = np.array((-300, -149, -127, -24, -1, 0, 1, 100, 127, 128, 300), np.int32)
    x, exponents = (axis.ravel() for axis in np.meshgrid(values, by))
    return _elements([x, exponents.astype(np.int32)], np.float32, 2)


def _shared(slots_of: str, dtype: type, count: int, total: int) -> Case:
    drawn = _drawn_floats(slots_of, count) if dtype is np.float32 else _words(slots_of, count)
    return Case((drawn, np.zeros(total, dtype), np.uint32(count)), (1,), (3, 1, 1), 256)


def _transpose() -> Case:
    rows, columns = 45, 70
    out = np.zeros(rows * columns, np.float32)
    arguments = (_drawn_floats("tile", rows * columns), out, np.uint32(rows), np.uint32(columns))
    return Case(arguments, (1,), (3, 2, 1), 256)


def _lanes(slots: int) -> Case:
    return Case((_words("lanes", 256).astype(np.int32), np.zeros(slots * 256, np.int32)), (1,), (1, 1, 1), 256)


def _narrow() -> Case:
    bytes_, shorts = _words("bytes", 100, np.uint8), _words("shorts", 100, np.uint16).astype(np.int16)
    arguments = (bytes_, shorts, np.zeros(100, np.int8), np.zeros(100, np.uint16), np.uint32(100))
    return Case(arguments, (2, 3), (2, 1, 1))


def _three() -> Case:
    return Case((np.zeros(3 * 2 * 2 * 64, np.uint32), np.uint32(3), np.uint32(2)), (0,), (3, 2, 2))


def _one_column(name: str, count: int, out: int, dtype: type = np.uint32) -> Case:
    values = np.concatenate([np.array(_INTS, np.uint32), _words(name, count - len(_INTS))]).astype(dtype)
    return Case((values, np.zeros(out, dtype), np.uint32(count)), (1,), (-(-count // 64), 1, 1))


_CASES: Final[dict[str, Callable[[], Case]]] = {
    "int32_add_mul": lambda: _integers("int32_add_mul", 20),
    "int32_bits": lambda: _integers("int32_bits", 21),
    "int32_divide": lambda: _integers("int32_divide", 8),
    "scalar_units": _scalars,
    "fp32_arithmetic": lambda: _reals("fp32_arithmetic", 14, 3),
    "fp32_rounding": lambda: _reals("fp32_rounding", 5, 1),
    "fp32_compare": lambda: _reals("fp32_compare", 8, 2, result=np.uint32),
    "fp32_min_max": lambda: _numbers_only(_reals("fp32_min_max", 6, 3)),
    "fp32_divide": lambda: _reals("fp32_divide", 2, 2),
    "fp32_square_root": lambda: _reals("fp32_square_root", 1, 1),
    "fp32_scale": _scaled,
    "fp32_pairs": lambda: _reals("fp32_pairs", 8, 3),
    "reduce_tree": lambda: _shared("reduce_tree", np.float32, 700, 3),
    "prefix_sum": lambda: _shared("prefix_sum", np.uint32, 700, 700),
    "transpose_odd_pitch": _transpose,
    "shared_widths": lambda: Case((_words("shared_widths", 512), np.zeros(512, np.uint32)), (1,), (2, 1, 1), 256),
    "collatz": lambda: _one_column("collatz", 100, 100),
    "nested_branches": lambda: _branches(),
    "narrow_memory": _narrow,
    "unaligned_records": lambda: Case(
        (_words("records", 70 * 7, np.uint8), np.zeros(70 * 7, np.uint8), np.uint32(70)), (1,), (2, 1, 1)
    ),
    "wide_memory": lambda: Case(
        (_words("wide_memory", 4 * 90), np.zeros(9 * 90, np.uint32), np.uint32(90)), (1,), (2, 1, 1)
    ),
    "buffer_descriptors": lambda: Case(
        (_words("buffers", 100), np.zeros(130, np.uint32), np.zeros(4 * 130, np.uint32), np.uint32(100)),
        (1, 2),
        (2, 1, 1),
    ),
    "private_array": lambda: _one_column("private_array", 100, 100),
    "private_bytes": lambda: _one_column("private_bytes", 100, 100),
    "lanes_of_gfx9": lambda: _lanes(3),
    "three_dimensions": _three,
}


def _branches() -> Case:
    case = _one_column("branches", 150, 150, np.int32)
    values = np.asarray(case.arguments[0]).copy()
    values[50:] = values[50:] % 512 - 200
    return Case((values, *case.arguments[1:]), case.results, case.groups)
