"""Whether the epochs of two runs differ by more than they differ among themselves: their ranges do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Of so many epochs each, of runs that are alike, one pair in ten has ranges apart by chance; of five, one in a hundred.
_FEWEST: Final = 3


def settled(values: Sequence[float]) -> list[float]:
    """Return the values of epochs without the first, which starts workers and warms up, where others are left."""
    return list(values[1:] if len(values) > 1 else values)


def later_half(values: Sequence[float]) -> list[float]:
    """Return the second half of the values, the middle one included: what a metric is when most is learned."""
    return list(values[len(values) // 2 :])


def differ(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether each value of one run is above each of the other; fewer than three epochs show no range."""
    if min(len(first), len(second)) < _FEWEST:
        return False
    return min(first) > max(second) or min(second) > max(first)
