"""`yolo-rocm bench train`: whole training steps, one way next to the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..utils.console import console, print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, key_values, print_table, say

if TYPE_CHECKING:
    from ..bench.train_table import TrainRow


def bench_train(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [batch=] [imgsz=] [amp=true|false] [ways=] [engine=] [memory_mb=] [steps=] [tune_s=] "
            "[out=]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what takes longest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time whole training steps of a detector and their memory: torch as it is, compiled, vendor off, and ours."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        entries, problems = _bench_train(words, quick, quiet=as_json)
    if as_json:
        print_json([_finite(entry) for entry in entries])
    for problem in problems:
        console(stderr=True).print(problem, markup=False)
    if problems:
        raise typer.Exit(1)


def _bench_train(words: list[str] | None, quick: bool, quiet: bool) -> tuple[list[dict[str, Any]], list[str]]:
    from ..bench import train as measure
    from ..bench import train_table as tables
    from ..bench import ways as made
    from ..bench.checks import folder
    from ..bench.faster import FEWEST_ROUNDS
    from ..bench.layers import default_device, threads_of_a_training
    from ..bench.results import write_csv

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "amp": False, "ways": None, "engine": None, "steps": 15}
    given = key_values(words, {**keys, "memory_mb": None, "tune_s": None, "out": BENCH_FOLDER})
    out, device = folder(given["out"]), default_device()
    ways = made.ways(given["engine"], given["memory_mb"], quick, given["ways"], on_gpu=device != "cpu")
    sizes = {key: given[key] for key in ("model", "batch", "imgsz", "amp", "steps", "tune_s")}
    with threads_of_a_training(device):
        bench = measure.TrainBench(device=device, **sizes, profiled=True)
        with progress("training steps, way after way", timed=True) as show:
            bench.run(ways, lambda done, total, _: show(done, total))
    table = tables.rows(ways, given["amp"])
    dtype = "amp" if given["amp"] else "fp32"
    name = f"train-{Path(given['model']).stem}-{dtype}-b{given['batch']}-{given['imgsz']}"
    entries = tables.stamped(table, device, " ".join(("yolo-rocm bench train", *(words or []))))
    title = f"{given['model']} {dtype} batch {given['batch']} imgsz {given['imgsz']} on {entries[0]['device']}"
    numbers_file, drawing = (out / f"{name}.{ending}" for ending in ("csv", "png"))
    write_csv(numbers_file, entries, {})
    tables.plot(drawing, table, title)
    if not quiet:
        _print(table, title)
        if bench.rounds < FEWEST_ROUNDS:
            say("With so few steps ratios are of single steps: give steps=30.")
        summary = tables.summary(ways)
        say(*([summary] if summary else []), f"\nevery number: {numbers_file}, drawn: {drawing}")
    return entries, tables.failures(table, bench.held_mb, bench.interrupted)


_TIMES: Final = {
    "step ms": ("step_ms", 1, ""),
    "to stock": ("to_stock", 3, "x"),
    "to vendor\noff": ("to_vendor_off", 3, "x"),
    "loss": ("loss", 4, ""),
    "tuning s": ("tuning_s", 1, ""),
}
_BUSY: Final = {
    **{"busy": ("busy_ms", 1, ""), "waited": ("waited_ms", 1, ""), "conv": ("convolution_ms", 1, "")},
    **{"norm": ("normalisation_ms", 1, ""), "act": ("activation_ms", 1, ""), "loss": ("loss_ms", 1, "")},
    **{"optim": ("optimizer_ms", 1, ""), "other": ("other_ms", 1, "")},
}
_MEMORY: Final = {
    **{"peak\nMB": ("peak_mb", 0, ""), "to\nstock": ("memory_to_stock", 3, "x")},
    **{"requested\nMB": ("requested_mb", 0, ""), "requested\nto stock": ("requested_to_stock", 3, "x")},
    **{"reserved\nMB": ("reserved_mb", 0, ""), "reserved\nto stock": ("reserved_to_stock", 3, "x")},
}


def _print(rows: Sequence[TrainRow], title: str) -> None:
    from ..bench.ways import PRESET

    _print_columns(rows, _TIMES, title)
    for row in rows:
        parts = ["its loss is wrong" if row.wrong else "", row.error, row.served]
        parts.append(f"{row.overflows} steps overflowed" if row.overflows else "")
        say(*([f"{row.way}: {'; '.join(filter(None, parts))}"] if any(parts) else []))
    say(
        f"*: what the preset {PRESET} runs. NHWC: channels_last. A step is forward, loss, backward, clipping and SGD; "
        "the median of interleaved turns, TF32 off, the vendor library searching for its fastest kernels "
        "(cudnn.benchmark). Ratios are to the faster layout of stock and of vendor off, medians of each round's, but "
        "for what is compiled. Loss: after two steps. docs/benchmarks.md says what the other columns are."
    )
    if any(row.busy_ms is not None for row in rows):
        _print_columns(rows, _BUSY, "milliseconds of a step, by what they were for")
    if any(row.peak_mb for row in rows):
        _print_columns(rows, _MEMORY, "memory")


def _print_columns(rows: Sequence[TrainRow], columns: Mapping[str, tuple[str, int, str]], title: str) -> None:
    table = [
        (
            f"{row.way.replace('channels_last', 'NHWC')}{' *' if row.of_preset else ''}",
            *(cell(getattr(row, name), digits, unit) for name, digits, unit in columns.values()),
        )
        for row in rows
        if row.step_ms is not None
    ]
    print_table(("way", *columns), table, title, cut=False)


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.items()}
