"""Two runs: what differs between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..conv.names import PASSES
from .head import Tile, tiles
from .run import Run
from .sections import argument_rows, preset_rows, stack_rows, text
from .spread import differ, settled

INCONCLUSIVE = "inconclusive"
# Of every run, and different in each of them.
_OWN = {"name", "save_dir", "project", "exist_ok"}


@dataclass(frozen=True)
class Difference:
    """One thing that differs. `change` says by how much where it is a number; `better` is 1, -1 or 0 for the other."""

    what: str
    first: str
    second: str
    change: str = ""
    better: int = 0


def differences(first: Run, second: Run) -> list[tuple[str, list[Difference]]]:
    """Return what differs between two runs in groups, the most telling first; groups without a difference are empty."""
    return [
        ("Outcome", [*_verdicts(first, second), *_numbers(first, second)]),
        ("Preset", _pairs(preset_rows(first), preset_rows(second))),
        ("Arguments of Ultralytics", _pairs(argument_rows(first), argument_rows(second), _OWN)),
        ("Hardware and stack", _pairs(stack_rows(first), stack_rows(second))),
        ("Convolutions", _pairs(_engines(first), _engines(second))),
    ]


def _verdicts(first: Run, second: Run) -> list[Difference]:
    if first.verdict.name == second.verdict.name:
        return []
    return [Difference("verdict", first.verdict.name, second.verdict.name)]


def _numbers(first: Run, second: Run) -> list[Difference]:
    others = {tile.label: tile for tile in tiles(second)}
    rows = []
    for tile in tiles(first):
        other = others.pop(tile.label, None)
        if other is None:
            rows.append(Difference(tile.label, tile.shown, "not measured"))
        elif tile.shown != other.shown and tile.value is not None and other.value is not None:
            if tile.shown.endswith("%"):  # a share of a share would say nothing
                change = f"{100 * (other.value - tile.value):+.1f} points"
            else:
                change = f"{other.value / tile.value - 1:+.1%}" if tile.value else ""
            direction = (other.value > tile.value) - (other.value < tile.value)
            if tile.epochs is not None and not differ(settled(tile.epochs), settled(other.epochs or ())):
                change, direction = f"{change} {INCONCLUSIVE}".strip(), 0
            rows.append(Difference(tile.label, _spread(tile), _spread(other), change, direction * tile.better))
    return rows + [Difference(tile.label, "not measured", tile.shown) for tile in others.values()]


def _spread(tile: Tile) -> str:
    """Return a number with the least and the largest of its epochs."""
    epochs = settled(tile.epochs or ())
    return f"{tile.shown} ({tile.form(min(epochs))} to {tile.form(max(epochs))})" if len(epochs) > 1 else tile.shown


def _pairs(
    first: Iterable[tuple[str, ...]], second: Iterable[tuple[str, ...]], without: Iterable[str] = ()
) -> list[Difference]:
    ones, others = {row[0]: row[1] for row in first}, {row[0]: row[1] for row in second}
    names = [name for name in dict.fromkeys([*ones, *others]) if name not in set(without)]
    return [
        Difference(name, ones.get(name, "not there"), others.get(name, "not there"))
        for name in names
        if ones.get(name) != others.get(name)
    ]


def _engines(run: Run) -> Iterable[tuple[str, str]]:
    """Return what computed each layer at the first shape it met, which is that of training."""
    found: dict[str, str] = {}
    for row in run.layers:
        ways = " / ".join(text(row.get(which) or "-") for which in PASSES)
        found.setdefault(text(row.get("layer")), f"{text(row.get('engine') or 'not reached')}: {ways}")
    return found.items()


def summary(run: Run) -> dict[str, Any]:
    """Return a run in a few numbers, as plain data for JSON."""
    verdict = run.verdict
    return {
        "folder": str(run.folder),
        "verdict": {"bound": verdict.kind, "name": verdict.name, "text": verdict.sentence, "change": verdict.change},
        "numbers": {tile.label: tile.value for tile in tiles(run)},
        "missing": list(run.remarks),
    }
