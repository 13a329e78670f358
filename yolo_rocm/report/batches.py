"""The timeline of batches, small enough for a page: whole stretches of an epoch, not every tenth batch of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from .files import number

# About 50 bytes each: a page of two runs stays below a megabyte.
MOST_BATCHES: Final = 8000
_COLUMNS: Final = (
    "epoch", "kind", "batch", "worker", "samples", "began", "load_s", "augment_s", "collate_s", "ended", "asked", "got",
)  # fmt: skip
_TIMES: Final = ("began", "load_s", "augment_s", "collate_s", "ended", "asked", "got")
_STRETCH: Final = 24
# Fewer epochs with more of their batches show more than a few batches of each.
_MOST_EPOCHS: Final = 40


def timeline(columns: list[str], rows: list[list[str]], most: int = MOST_BATCHES) -> dict[str, Any]:
    """Return the batches of each epoch as short rows of integers, times in units of 0.1 ms from the epoch's start.

    Where there are too many, an epoch keeps its beginning, its end, and what is around its longest waits.

    Args:
        columns: Names of the columns.
        rows: Rows of the file.
        most: Batches to keep in all.

    Returns:
        `epochs`, each with `epoch`, `of` (batches it had) and `rows` of [kind (0 train, 1 validation), batch, worker,
        samples, began, load, augment, collate, ended, asked, got]; `kept` and `all`.
    """
    if not set(_COLUMNS) <= set(columns):
        return {"epochs": [], "kept": 0, "all": 0}
    place = {name: columns.index(name) for name in _COLUMNS}
    epochs: dict[int, list[list[str]]] = {}
    for row in rows:
        epoch = number(row[place["epoch"]])
        if epoch is not None:
            epochs.setdefault(int(epoch), []).append(row)
    chosen = _spread(sorted(epochs))
    quota = most // max(1, len(chosen))
    told: list[dict[str, Any]] = []
    for epoch in chosen:
        batches = [short for row in epochs[epoch] if (short := _short(row, place)) is not None]
        batches = _newest(batches)
        if not batches:
            continue
        kept = _stretches(batches, quota)
        start = batches[0][9]  # workers begin an epoch ahead of it: times before its start are negative
        told.append(
            {
                "epoch": epoch,
                "of": len(batches),
                "rows": [[*row[:4], row[4] - start, *row[5:8], *(value - start for value in row[8:])] for row in kept],
            }
        )
    return {"epochs": told, "kept": sum(len(e["rows"]) for e in told), "all": len(rows)}


def _spread(epochs: list[int]) -> list[int]:
    """Return the first three epochs, and the rest at even distances up to the last one."""
    if len(epochs) <= _MOST_EPOCHS:
        return epochs
    rest, count = epochs[3:], _MOST_EPOCHS - 3
    return [*epochs[:3], *(rest[round(i * (len(rest) - 1) / (count - 1))] for i in range(count))]


def _short(row: list[str], place: dict[str, int]) -> list[int] | None:
    times = [number(row[place[name]]) for name in _TIMES]
    counts = [number(row[place[name]]) for name in ("batch", "worker", "samples")]
    if any(value is None for value in (*times, *counts)):
        return None
    kind = 0 if row[place["kind"]] == "train" else 1
    return [kind, *(int(value or 0) for value in counts), *(round((value or 0) * 1e4) for value in times)]


def _newest(batches: list[list[int]]) -> list[list[int]]:
    """Leave out earlier tries at the same epoch: one that is run again is written again, perhaps by another clock."""
    begin = 0
    for index, (before, row) in enumerate(pairwise(batches), start=1):
        if row[9] < before[9] or row[0] < before[0]:
            begin = index
    return batches[begin:]


def _stretches(batches: list[list[int]], quota: int) -> list[list[int]]:
    if len(batches) <= quota:
        return batches
    keep = {*range(quota // 3), *range(len(batches) - quota // 6, len(batches))}
    by_wait = sorted(range(1, len(batches)), key=lambda i: batches[i][9] - batches[i][10])
    for index in by_wait:
        if len(keep) + _STRETCH > quota:
            break
        keep.update(range(max(0, index - _STRETCH // 2), min(len(batches), index + _STRETCH // 2)))
    return [batches[index] for index in sorted(keep)]
