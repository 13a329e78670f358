"""Whether the epochs of two runs differ by more than they differ among themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Final

# Student's t for 95 %, both sides, by degrees of freedom.
_T: Final = (
    *((1, 12.71), (2, 4.30), (3, 3.18), (4, 2.78), (5, 2.57)),
    *((6, 2.45), (8, 2.31), (10, 2.23), (15, 2.13), (30, 2.04)),
)
_T_OF_MANY: Final = 1.96


def settled(values: Sequence[float]) -> list[float]:
    """Return the values of epochs without the first, which starts workers and warms up, where others are left."""
    return list(values[1:] if len(values) > 1 else values)


def differ(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two samples differ (Welch's test at 95 %). One value alone shows no spread, so it never does."""
    if len(first) < 2 or len(second) < 2:
        return False
    errors = variance(first) / len(first), variance(second) / len(second)
    apart = abs(fmean(first) - fmean(second))
    if sum(errors) == 0:
        return apart > 0
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / (len(first) - 1) + errors[1] ** 2 / (len(second) - 1))
    return apart / math.sqrt(sum(errors)) > _critical(freedom)


def _critical(freedom: float) -> float:
    """Return the value for the next smaller number in the table, which is the more careful one."""
    if freedom > 2 * _T[-1][0]:
        return _T_OF_MANY
    return next((t for known, t in reversed(_T) if freedom >= known), _T[0][1])
