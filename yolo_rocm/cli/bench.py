"""The benchmarks of the command line: `yolo-rocm bench conv`, `loader`, `memory`, `predict`, `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .bench_conv import bench_conv
from .bench_memory import bench_memory
from .bench_predict import bench_predict
from .bench_train import bench_train
from .options import BENCH_FOLDER, KEY_VALUES, AsJson, PlainFlags, cell, key_values, print_table, say

bench = typer.Typer(cls=PlainFlags, help="Benchmark against the alternatives, in one run.", no_args_is_help=True)
bench.command(
    "train", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench train yolov8n.yaml batch=64 amp=true"
)(bench_train)
bench.command("memory", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench memory yolov8s.yaml vram_gb=6")(
    bench_memory
)
bench.command(
    "predict", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench predict best.pt imgsz=640 source=photos"
)(bench_predict)
bench.command(
    "conv", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench conv yolov8n.yaml batch=64 dtype=fp16"
)(bench_conv)


@bench.command(
    "loader",
    context_settings=KEY_VALUES,
    epilog="Example: yolo-rocm bench loader data.yaml workers=4 context=forkserver",
)
def bench_loader(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA [workers=] [context=spawn|forkserver|fork|all] [batch=] [images=] [batches=]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time loaders over a detection data set: Ultralytics' own with fork, spawn and no workers, and ours."""
    from ..bench import loader as measure
    from ..bench.checks import folder
    from ..preset.resolve import resolve

    context = resolve("auto").preset.loader.context
    keys = {"workers": 2, "context": context, "batch": 16, "imgsz": 640, "epochs": 3, "images": None, "batches": None}
    given = key_values(words, {"data": None, **keys, "out": BENCH_FOLDER}, first="data")
    if given["data"] is None:
        raise typer.BadParameter("give the YAML of a detection data set")
    out = folder(given["out"])
    wanted = measure.ways(given["data"], **{key: given[key] for key in keys})
    with stdout_for_json(as_json), progress("measuring loaders", timed=True) as show:
        rows = measure.bench_loader(wanted, show)
    name = f"loader-{given['context']}-w{given['workers']}-b{given['batch']}-{given['imgsz']}"
    table, drawing = (out / f"{name}.{ending}" for ending in ("csv", "png"))
    title = f"{Path(given['data']).parent.name}, {given['workers']} workers, batch {given['batch']}"
    measure.write_csv(table, rows, " ".join(("yolo-rocm bench loader", *(words or []))))
    measure.plot(drawing, rows, title)
    if as_json:
        print_json({"title": title, "ways": rows, "table": str(table), "drawing": str(drawing)})
        return
    _print_loaders(rows, measure.BASE, title)
    say(f"\nevery measurement: {table}, drawn: {drawing}")


def _print_loaders(rows: list[dict[str, Any]], base: str, title: str) -> None:
    reference = next((row for row in rows if row["way"] == base), {})

    def ratio(row: dict[str, Any], key: str) -> str:
        return cell(row[key] / reference[key] if row.get(key) and reference.get(key) else None, 2, "x")

    print_table(
        ("way", "first batch s", f"to {base}", "images/s", "private MB", f"to {base}", "shared MB", "note"),
        (
            (
                row["way"],
                cell(row.get("first_batch_s"), 2),
                ratio(row, "first_batch_s"),
                cell(row.get("images_per_s"), 1),
                cell(row.get("private_mb"), 0),
                ratio(row, "private_mb"),
                cell(row.get("shared_mb"), 0),
                row.get("error") or row.get("note", ""),
            )
            for row in rows
        ),
        title,
    )
