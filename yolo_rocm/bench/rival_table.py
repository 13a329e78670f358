"""What rivals came to over a model: layers right, wrong and not runnable, and ours on those that are right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ..conv.names import PASSES
from ..engines.names import Pass
from .conv import AUTO, Row
from .rivals import BACKWARD, NOT_RUNNABLE, WRONG


def rival_table(rows: Sequence[Row], rivals: Iterable[str]) -> list[dict[str, Any]]:
    """Return one entry per rival and pass, each layer counted as often as the model has it.

    Milliseconds, and those of `auto`, are of the layers where the rival's result is right. A backward pass in one call
    is next to the sum of the gradients that `auto` computes.

    Args:
        rows: What was measured.
        rivals: Names of the rivals, in order.
    """
    ours: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.way == AUTO and row.milliseconds is not None:
            ours[row.problem, row.pass_] += row.milliseconds
            if row.pass_ != "forward":
                ours[row.problem, BACKWARD] += row.milliseconds
    table = []
    for rival in rivals:
        for which in (*PASSES, BACKWARD):
            own = [row for row in rows if (row.way, row.pass_) == (rival, which)]
            if own:
                table.append(_entry(rival, which, own, ours))
    return table


def _entry(rival: str, which: Pass, rows: Sequence[Row], ours: dict[tuple[str, str], float]) -> dict[str, Any]:
    right = [row for row in rows if row.milliseconds is not None]
    counted: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = {WRONG: Counter(), NOT_RUNNABLE: Counter()}
    for row in rows:
        counted[row.verdict] += row.count
        if row.verdict:
            reasons[row.verdict][row.why] += row.count
    return {
        "rival": rival,
        "pass": which,
        "layers": sum(row.count for row in rows),
        "right": counted[""],
        "wrong": counted[WRONG],
        "not_runnable": counted[NOT_RUNNABLE],
        "ms": sum((row.milliseconds or 0.0) * row.count for row in right) if right else None,
        "auto_ms": sum(ours[row.problem, which] * row.count for row in right) if right else None,
        "reasons": {verdict: dict(whys) for verdict, whys in reasons.items() if whys},
    }


def verdict_of(entry: dict[str, Any]) -> str:
    """Return what stands where a time would: nothing where a layer is right."""
    if entry["right"]:
        return ""
    return WRONG if entry["wrong"] else NOT_RUNNABLE


def reasons(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Return a line for each rival and verdict: the passes, with how many layers, and the most frequent reason."""
    passes: dict[tuple[str, str], list[str]] = defaultdict(list)
    whys: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for entry in entries:
        for verdict, counted in entry["reasons"].items():
            key = (entry["rival"], verdict)
            passes[key].append(f"{entry['pass']} of {sum(counted.values())}")
            whys[key].update(counted)
    lines = []
    for (rival, verdict), counted in whys.items():
        ((first, _), *others) = counted.most_common()
        more = f"; {len(others)} more reasons, layer by layer, in the CSV file" if others else ""
        lines.append(f"{rival} is {verdict}, {', '.join(passes[rival, verdict])} layers: {first}{more}")
    return lines
