"""Two runs: what differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..conv.names import PASSES
from .head import KeyNumber, tiles
from .run import RunData
from .sections import argument_rows, preset_rows, stack_rows, text

INCONCLUSIVE = "inconclusive"
# Of so many epochs each, of runs that are alike, one pair in ten has ranges apart by chance; of five, one in a hundred.
_FEWEST = 3
_NONE = "not measured"
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
    ones, others = ({tile.label: tile for tile in tiles(run)} for run in (first, second))
    same_data = first.arguments.get("data") == second.arguments.get("data")  # else metrics say nothing about the runs
    rows = []
    for label in dict.fromkeys([*ones, *others]):
        if label.startswith("best ") and not same_data:
            continue
        one, other = ones.get(label), others.get(label)
        if one is None or other is None:
            rows.append(RunDifference(label, one.shown if one else _NONE, other.shown if other else _NONE))
        else:
            rows.append(_change(one, other))
    return [row for row in rows if row.first != row.second]


def _change(one: KeyNumber, other: KeyNumber) -> RunDifference:
    """Compare a number of two runs; of epochs it is their median, and a change where their ranges are apart."""
    is_proven = not one.epochs or apart(one.epochs, other.epochs)
    before, after = (median(tile.epochs or [tile.value or 0.0]) for tile in (one, other))
    if one.shown.endswith("%"):  # a share of a share would say nothing
        change = f"{100 * (after - before):+.1f} points"
    else:
        change = f"{after / before - 1:+.1%}" if before else ""
    better = one.better * ((after > before) - (after < before)) if is_proven else 0
    return RunDifference(
        one.compared or one.label,
        _range(one, before),
        _range(other, after),
        change if is_proven else f"{INCONCLUSIVE} ({change})",
        better,
    )


def apart(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether each value of one run is above each of the other; fewer than three epochs show no range."""
    if min(len(first), len(second)) < _FEWEST:
        return False
    return min(first) > max(second) or min(second) > max(first)


def _range(tile: KeyNumber, value: float) -> str:
    """Return a number, with the least and the largest epoch where it is one of epochs."""
    if len(tile.epochs) < 2:
        return tile.form(value)
    return f"{tile.form(value)} ({tile.form(min(tile.epochs))} to {tile.form(max(tile.epochs))})"


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
    first_met = {text(row.get("layer")): row for row in reversed(run.layers)}
    for layer, row in sorted(reversed(first_met.items()), key=lambda item: -(item[1]["total_ms"] or 0.0)):
        ways = " / ".join(text(row.get(which) or "-") for which in PASSES)
        yield layer, f"{text(row.get('engine') or 'not reached')}: {ways}"


def summary(run: RunData) -> dict[str, Any]:
    """Return a run in a few numbers, as plain data for JSON."""
    verdict = run.verdict
    return {
        "folder": str(run.folder),
        "verdict": {"bound": verdict.kind, "name": verdict.name, "text": verdict.sentence, "change": verdict.change},
        "numbers": {tile.label: tile.value for tile in tiles(run)},
        "missing": list(run.remarks),
    }
