"""Whether the epochs of two runs differ by more than they differ among themselves: Yuen's test of trimmed means.

One epoch that another program held up would move a plain mean and widen its spread; a fifth of the epochs at either end
does not count. With fewer than five epochs nothing is trimmed, and the test is Welch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from statistics import fmean, variance
from typing import Final

# Of the epochs, at either end.
_TRIMMED: Final = 0.2
# Of pairs of runs that are alike, so many are told apart where epochs are independent.
_ERROR: Final = 0.05


def settled(values: Sequence[float]) -> list[float]:
    """Return the values of epochs without the first, which starts workers and warms up, where others are left."""
    return list(values[1:] if len(values) > 1 else values)


def later_half(values: Sequence[float]) -> list[float]:
    """Return the second half of the values, the middle one included: what a metric is when most is learned."""
    return list(values[len(values) // 2 :])


def typical(values: Sequence[float]) -> float:
    """Return the trimmed mean."""
    cut = _cut(values)
    return fmean(sorted(values)[cut : len(values) - cut])


def differ(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two samples differ, at 95 %. One value alone shows no spread, so it never does."""
    if len(first) < 2 or len(second) < 2:
        return False
    errors = _squared_error(first), _squared_error(second)
    apart = abs(typical(first) - typical(second))
    if sum(errors) == 0:
        return apart > 0
    left = [len(values) - 2 * _cut(values) - 1 for values in (first, second)]
    freedom = sum(errors) ** 2 / sum(error**2 / more for error, more in zip(errors, left, strict=True))
    return both_tails(apart / math.sqrt(sum(errors)), freedom) < _ERROR


def both_tails(t: float, freedom: float) -> float:
    """Return how likely Student's t is as far from 0 as this, or further, on either side."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _cut(values: Sequence[float]) -> int:
    """Return how many values are trimmed at either end."""
    return int(_TRIMMED * len(values))


def _squared_error(values: Sequence[float]) -> float:
    """Return the squared standard error of the trimmed mean, from the winsorised variance."""
    cut, ordered = _cut(values), sorted(values)
    low, high = ordered[cut], ordered[-1 - cut]
    left = len(values) - 2 * cut
    return variance([min(high, max(low, value)) for value in values]) * (len(values) - 1) / (left * (left - 1))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there it converges slowly, and its mirror image fast
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    # Evaluated by Lentz's method: ratios of successive numerators, and of successive denominators.
    above, below, fraction = 1.0, 0.0, 1.0
    for term in count(1):
        half = term // 2
        if term % 2:
            part = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        below, above = 1 / (1 + part * below), 1 + part / above
        fraction *= above * below
        if abs(above * below - 1) < 1e-14:
            break
    return front / fraction
