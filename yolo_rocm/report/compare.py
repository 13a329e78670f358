"""Two runs: what differs between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ..conv.names import PASSES
from .head import KeyNumber, tiles
from .run import RunData
from .sections import argument_rows, preset_rows, stack_rows, text
from .spread import differ

INCONCLUSIVE = "inconclusive"
# Of every run, and different in each of them.
_OWN = {"name", "save_dir", "project", "exist_ok"}


@dataclass(frozen=True)
class RunDifference:
    """One thing that differs. `change` says by how much where it is a number; `better` is 1, -1 or 0 for the other."""

    what: str
    first: str
    second: str
    change: str = ""
    better: int = 0


def differences(first: RunData, second: RunData) -> list[tuple[str, list[RunDifference]]]:
    """Return what differs between two runs in groups, the most telling first; groups without a difference are empty."""
    return [
        ("Outcome", [*_verdicts(first, second), *_numbers(first, second)]),
        ("Preset", _pairs(preset_rows(first), preset_rows(second))),
        ("Arguments of Ultralytics", _pairs(argument_rows(first), argument_rows(second), _OWN)),
        ("Hardware and stack", _pairs(stack_rows(first), stack_rows(second))),
        ("Convolutions", _pairs(_engines(first), _engines(second))),
    ]


def _verdicts(first: RunData, second: RunData) -> list[RunDifference]:
    if first.verdict.name == second.verdict.name:
        return []
    return [RunDifference("verdict", first.verdict.name, second.verdict.name)]


def _numbers(first: RunData, second: RunData) -> list[RunDifference]:
    others = {tile.label: tile for tile in tiles(second)}
    # However far apart metrics of different data are, they say nothing about the runs.
    doubts = {} if first.arguments.get("data") == second.arguments.get("data") else {"metric": "other data"}
    rows = []
    for tile in tiles(first):
        other = others.pop(tile.label, None)
        if other is None:
            rows.append(RunDifference(tile.label, tile.shown, "not measured"))
        elif tile.epochs and other.epochs:
            rows.append(_of_epochs(tile, other, doubts.get(tile.kind, "")))
        elif tile.value is not None and other.value is not None:
            rows.append(_change(tile, tile.shown, other.shown, tile.value, other.value))
    rows = [row for row in rows if row.first != row.second]
    return rows + [RunDifference(tile.label, "not measured", tile.shown) for tile in others.values()]


def _of_epochs(tile: KeyNumber, other: KeyNumber, doubt: str) -> RunDifference:
    """Return the median of a number with the least and the largest of its epochs, and whether those are apart."""
    one, two = median(tile.epochs), median(other.epochs)
    row = _change(tile, _spread(tile, one), _spread(other, two), one, two)
    if not doubt and differ(tile.epochs, other.epochs):
        return row
    said = f"{INCONCLUSIVE}, {doubt}" if doubt else INCONCLUSIVE
    return replace(row, change=f"{said} ({row.change})" if row.change else said, better=0)


def _change(tile: KeyNumber, first: str, second: str, one: float, two: float) -> RunDifference:
    if tile.form(one).endswith("%"):  # a share of a share would say nothing
        change = f"{100 * (two - one):+.1f} points"
    else:
        change = f"{two / one - 1:+.1%}" if one else ""
    direction = (two > one) - (two < one)
    return RunDifference(tile.compared or tile.label, first, second, change, direction * tile.better)


def _spread(tile: KeyNumber, value: float) -> str:
    epochs, shown = tile.epochs, tile.form(value)
    return f"{shown} ({tile.form(min(epochs))} to {tile.form(max(epochs))})" if len(epochs) > 1 else shown


def _pairs(
    first: Iterable[tuple[str, ...]], second: Iterable[tuple[str, ...]], without: Iterable[str] = ()
) -> list[RunDifference]:
    ones, others = {row[0]: row[1] for row in first}, {row[0]: row[1] for row in second}
    names = [name for name in dict.fromkeys([*ones, *others]) if name not in set(without)]
    return [
        RunDifference(name, ones.get(name, "not there"), others.get(name, "not there"))
        for name in names
        if ones.get(name) != others.get(name)
    ]


def _engines(run: RunData) -> Iterable[tuple[str, str]]:
    """Return what computed each layer at the first shape it met, which is that of training; the slowest first."""
    found: dict[str, str] = {}
    first_met = {text(row.get("layer")): row for row in reversed(run.layers)}
    for row in sorted(reversed(first_met.values()), key=lambda row: -(row["total_ms"] or 0.0)):
        ways = " / ".join(text(row.get(which) or "-") for which in PASSES)
        found[text(row.get("layer"))] = f"{text(row.get('engine') or 'not reached')}: {ways}"
    return found.items()


def summary(run: RunData) -> dict[str, Any]:
    """Return a run in a few numbers, as plain data for JSON."""
    verdict = run.verdict
    return {
        "folder": str(run.folder),
        "verdict": {"bound": verdict.kind, "name": verdict.name, "text": verdict.sentence, "change": verdict.change},
        "numbers": {tile.label: tile.value for tile in tiles(run)},
        "missing": list(run.remarks),
    }
