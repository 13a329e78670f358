"""`yolo-rocm bench conv`: every convolution of a model, one way next to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..conv.names import PASSES
from ..utils.console import console, print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, key_values, print_table, say


def bench_conv(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [batch=] [imgsz=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=] [out=]"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The vendor library and our choice alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time every convolution of a model: vendor library, vendor off, the plain patch, each algorithm, and auto."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        found = _bench_conv(words, quick)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["interrupted"]:
        console(stderr=True).print(found["interrupted"], markup=False)
        raise typer.Exit(1)


def _bench_conv(words: list[str] | None, quick: bool) -> dict[str, Any]:
    from ..bench import conv as measure
    from ..bench.checks import check, folder
    from ..bench.layers import OURS, layers_of
    from ..conv.plan import Planner

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "dtype": "fp32", "layout": "nchw", "engine": OURS}
    given = key_values(words, {**keys, "memory_mb": None, "out": BENCH_FOLDER})
    check({"memory_mb": given["memory_mb"]}, optional=("memory_mb",))
    out = folder(given["out"])
    # Layer by layer, each with its fastest: whether an engine is worth its memory is a question of a whole training.
    planner = Planner(str(given["engine"]), memory_mb=given["memory_mb"], remember=False, for_training=False)
    with (
        layers_of(given) as (device, layers),
        progress("measuring convolutions", timed=True) as show,
    ):
        rows = measure.bench_conv(layers, planner, show, quick=quick)
    measured = len({row.problem for row in rows})
    part = f"{measured} of {len(layers)} distinct convolutions" if measured < len(layers) else ""
    name = f"conv-{Path(given['model']).stem}-{given['dtype']}-{given['layout']}-b{given['batch']}-{given['imgsz']}"
    name = f"{name}-part" if part else name  # not over what an earlier run has measured whole
    table, drawing = (out / f"{name}.{ending}" for ending in ("csv", "png"))
    title = f"{given['model']} {given['dtype']} {given['layout']} batch {given['batch']} imgsz {given['imgsz']}"
    measure.write_csv(table, rows, device, " ".join(("yolo-rocm bench conv", *(words or []))))
    measure.plot(drawing, rows, title, part or "all convolutions")
    return {
        "title": f"{title} on {device}{part and f', {part}'}",
        "device": device,
        "dtype": given["dtype"],
        "interrupted": part and f"interrupted: {part} were measured, and sums are of these alone",
        "totals_ms": measure.totals(rows),
        "largest_workspaces_mb": measure.largest_workspaces(rows),
        "table": str(table),
        "drawing": str(drawing),
    }


def _print(found: dict[str, Any]) -> None:
    _print_sums(found["totals_ms"], found["largest_workspaces_mb"], found["title"])
    if found["device"] == "cpu":
        say("Times are medians of calls by the clock.")
    else:
        say(
            "Device time without launch gaps, fp32 without TF32; vendor off: calls in a row, with their gaps, as it "
            "launches kernels sample by sample."
        )
    say(f"\nevery measurement: {found['table']}, drawn: {found['drawing']}")


def _print_sums(sums: dict[str, dict[str, float]], workspaces: dict[str, float], title: str) -> None:
    columns = (*PASSES, "sum")
    heads = ("way", *(f"{column} ms" for column in columns), "to vendor", "to vendor off", "largest workspace MB")
    bases = [sums.get(base, {}).get("sum") for base in ("vendor", "vendor off")]
    rows = [
        (
            way,
            *(cell(passes.get(column), 2) for column in columns),
            *(cell(passes["sum"] / base if base else None, 3, "x") for base in bases),
            cell(workspaces.get(way), 1),
        )
        for way, passes in sums.items()
    ]
    print_table(heads, rows, title)
