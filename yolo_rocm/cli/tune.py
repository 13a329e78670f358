"""`yolo-rocm tune`: the convolutions of a model measured ahead of time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import AsJson, key_values, print_table, say


def tune(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [imgsz=] [batch=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the convolutions of a model ahead of time, so that the first training does not have to."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        rows, facts = _tune(words)
    if as_json:
        print_json({**facts, "convolutions": rows})
        return
    passes = [key for key in rows[0] if key not in ("convolution", "times_ms")] if rows else []
    cells = (
        (f"{row[w]} {row['times_ms'][w]:.3f} ms" if w in row["times_ms"] else row[w] for w in passes) for row in rows
    )
    print_table(("convolution", *passes), ((row["convolution"], *line) for row, line in zip(rows, cells, strict=True)))
    told = f"{facts['measured']} of {len(rows)} convolutions measured now, {facts['known']} known before"
    if facts["left"]:
        told += f", {facts['left']} left as time or memory ran out: the same command goes on with them"
    say(f"{told}, on {facts['device']}")


def _tune(words: list[str] | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return what computes each convolution and in what time, and how many have been measured."""
    from ..bench.checks import check
    from ..bench.layers import layers_of
    from ..conv.names import PASSES
    from ..conv.plan import DEFAULT_TUNE_SECONDS, Planner

    keys = {"model": "yolov8n.yaml", "imgsz": 640, "batch": 16, "dtype": "fp32", "layout": "nchw", "engine": "auto"}
    given = key_values(words, {**keys, "memory_mb": None})
    check({"memory_mb": given["memory_mb"]}, optional=("memory_mb",))
    planner = Planner(str(given["engine"]), memory_mb=given["memory_mb"])
    with layers_of(given) as (device, layers):
        problems = [layer.problem for layer in layers]
        waiting = len(planner.unmeasured(problems))
        with progress("measuring convolutions", timed=True, limit_s=DEFAULT_TUNE_SECONDS) as show:
            timings = planner.tune(problems, show)
    rows: list[dict[str, Any]] = []
    for problem in problems:
        plan, measured = planner.plan(problem), timings.get(problem, {})
        names: dict[str, str] = {which: plan[which].algorithm.name for which in PASSES}
        found = ((which, timing) for which in PASSES for timing in measured.get(which, []))
        times = {which: timing.milliseconds for which, timing in found if timing.algorithm == names[which]}
        rows.append({"convolution": str(problem), **names, "times_ms": times})
    left = waiting - len(timings)
    return rows, {"device": device, "measured": len(timings), "known": len(rows) - waiting, "left": left}
