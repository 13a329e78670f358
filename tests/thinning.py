"""Grids of cases: by default each value of each parameter in some case, the whole product by `-m deep`.

Two `parametrize` marks on a test make a product. What it shows beyond its values are pairs of them, and most of those
repeat one another. Lists of cases in one mark are left alone: their author has chosen each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import Any

import pytest

SMALL = 4
"""Products of at most this many cases stay whole, as does a test with the mark `whole_grid`."""

Values = tuple[Hashable, ...]


def mark_deep(items: Iterable[pytest.Item], named: Callable[[str], bool]) -> None:
    """Mark as `deep` what repeats other cases of its test, unless it was asked for by its whole name."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("deep"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in tests.values():
        # What is skipped shows nothing; where all of it is, on a machine without a GPU, the sample is that of a GPU.
        cases = [case for case in every if not is_skipped(case)] or every
        if len(cases) <= SMALL or cases[0].get_closest_marker("whole_grid"):
            continue
        # Each value of a fixture is a machine or a network of its own, on which all else has to be seen.
        machines: dict[Values, list[tuple[pytest.Item, Values]]] = {}
        for case in cases:
            values, machine = axes(case)
            machines.setdefault(machine, []).append((case, values))
        for grid in machines.values():
            kept = sample([values for _, values in grid])
            for place, (case, _) in enumerate(grid):
                if place not in kept and not named(case.nodeid):
                    case.add_marker(pytest.mark.deep)


def deep_but(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return parameters of which all but these are `deep`."""
    listed = list(cases)
    assert all(each in listed for each in kept), "what is kept is one of them"
    return [case if case in kept else pytest.param(case, marks=pytest.mark.deep) for case in listed]


def is_skipped(item: pytest.Item) -> bool:
    """Return whether a mark alone decides that a case is skipped here: it would show nothing."""
    conditions = [mark.args[0] for mark in item.iter_markers("skipif") if mark.args]
    return any(condition is True for condition in conditions) or item.get_closest_marker("skip") is not None


def axes(item: pytest.Item) -> tuple[Values, Values]:
    """Return the values of a case, one for each mark that makes a product, and those of its fixtures."""
    given = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    values = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        listed = names.split(",") if isinstance(names, str) else names
        values.append(tuple(id(given.pop(name.strip(), None)) for name in listed))
    return tuple(values), tuple(id(value) for value in given.values())


def sample(grid: list[Values]) -> set[int]:
    """Return places in a grid that have every value of every axis, and as many different pairs as their number can.

    They are at least as many as the square root of the whole.
    """
    if not grid or len(grid[0]) < 2:
        return set(range(len(grid)))
    singles = [set(enumerate(values)) for values in grid]
    pairs = [set(combinations(enumerate(values), 2)) for values in grid]
    missing: set[tuple[int, Hashable]] = set().union(*singles)
    seen: set[object] = set()
    kept: set[int] = set()
    while missing or len(kept) ** 2 < len(grid):
        places = set(range(len(grid))) - kept
        best = max(places, key=lambda place: (len(singles[place] & missing), len(pairs[place] - seen), -place))
        missing -= singles[best]
        seen |= pairs[best]
        kept.add(best)
    return kept
