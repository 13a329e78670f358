"""Which of two ways to compute a training step is faster."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median, median_high, median_low
from typing import Final

from .way import Way

FEWEST_ROUNDS: Final = 3  # of fewer there is no median


def time_ratio(way: Way, peer: Way) -> float | None:
    """Return how much longer steps of a way take than those of another one; None where one of them has not run.

    It is the median of the ratios of each round: the pace of a host may change by a third from round to round, and the
    medians of all steps of two ways may lie in different ones. Those are compared where one is compiled, which takes a
    single turn.
    """
    mine, other = way.step_ms, peer.step_ms
    if mine is None or not other:
        return None
    if way.compiled or peer.compiled:
        return mine / other
    rounds = zip(way.turns_ms, peer.turns_ms, strict=False)  # an interrupted one has fewer
    ratios = [median(one) / median(another) for one, another in rounds]
    # Of an even number of rounds the geometric mean of the middle ones: it does not depend on which way is the peer.
    return sqrt(median_low(ratios) * median_high(ratios))


def faster(ways: Sequence[Way], kind: str) -> Way | None:
    """Return the faster layout of a kind; None where none has run."""
    ran = [way for way in ways if way.kind == kind and way.step_ms is not None]
    return min(ran, key=lambda way: time_ratio(way, ran[0]) or 0.0, default=None)


def preset_way(ways: Sequence[Way]) -> Way | None:
    """Return what the preset runs, in its faster layout where it would choose one; None where it has not run."""
    own = [way for way in ways if way.of_preset]
    return faster(own, own[0].kind) if own else None


def settle_layout(way: Way, ways: Sequence[Way]) -> None:
    """Give a way without a layout that of the faster way it follows, or channels_last where none has run.

    Fastest steps are compared, as there may be only one round yet: a host whose pace changes can only add time.
    """
    if way.channels_last is None:
        ran = [peer for peer in ways if peer.kind == way.follows and peer.step_ms is not None]
        followed = min(ran, key=lambda peer: min(peer.times_ms), default=None)
        way.channels_last = True if followed is None else followed.channels_last
