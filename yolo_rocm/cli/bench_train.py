"""`yolo-rocm bench train`: whole training steps, one way next to the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.console import console, print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, is_slow, key_values, print_table, say

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
    from ..bench import train_notes as notes
    from ..bench import train_table as tables
    from ..bench import ways as made
    from ..bench.checks import folder
    from ..bench.layers import default_device, threads_of_a_training
    from ..bench.results import write_csv

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "amp": False, "ways": None, "engine": None, "steps": 15}
    given = key_values(words, {**keys, "memory_mb": None, "tune_s": None, "out": BENCH_FOLDER})
    out, device = folder(given["out"]), default_device()
    ways = made.ways(given["engine"], given["memory_mb"], quick, given["ways"], on_gpu=device != "cpu")
    sizes = {key: given[key] for key in ("model", "batch", "imgsz", "amp", "steps", "tune_s")}
    with threads_of_a_training(device):
        bench = measure.TrainBench(device=device, **sizes, profiled=True)
        with progress("training steps, way after way", timed=True, slow=is_slow(given)) as show:
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
        _print(table, title, [notes.footnote(table), *notes.warnings(ways, bench.rounds)])
        summary = tables.summary(ways, table)
        say(*([summary] if summary else []), f"\nevery number: {numbers_file}, drawn: {drawing}")
    return entries, tables.failures(table, bench.held_mb, bench.interrupted)


def _print(rows: Sequence[TrainRow], title: str, below: Sequence[str]) -> None:
    table, notes = [], []
    for row in rows:
        times = (cell(row.step_ms, 1), cell(row.to_stock, 3, "x"), cell(row.to_vendor_off, 3, "x"))
        loss = f"{cell(row.loss, 4)}{' wrong' if row.wrong else ''}"
        table.append((_short(row), *times, loss, cell(row.tuning_s, 1)))
        left_out = f"{row.overflows} steps overflowed" if row.overflows else ""
        if note := "; ".join(part for part in (_why(row), row.served, left_out) if part):
            notes.append(f"{row.way}: {note}")
    print_table(("way", "step ms", "to stock", "to vendor\noff", "loss", "tuning s"), table, title, cut=False)
    say(*notes, *below)
    if any(row.busy_ms is not None for row in rows):
        _print_busy(rows)
    if any(row.peak_mb for row in rows):
        _print_memory(rows)


def _short(row: TrainRow) -> str:
    """Return the name of a way for a narrow table."""
    return f"{row.way.replace('channels_last', 'NHWC')}{' *' if row.of_preset else ''}"


def _why(row: TrainRow) -> str:
    """Say why a way has no numbers; nothing where it has."""
    plain = row.error.startswith(("not runnable", "interrupted"))
    return row.error if plain else row.error and f"failed: {row.error}"


def _print_busy(rows: Sequence[TrainRow]) -> None:
    on_gpu = any(row.waited_ms is not None for row in rows)
    kinds = {"conv": "convolution", "norm": "normalisation", "act": "activation"}
    kinds |= {"loss": "loss", "optim": "optimizer", "other": "other"}
    profiled = [row for row in rows if row.busy_ms is not None]
    table = [
        (
            _short(row),
            cell(row.busy_ms, 1),
            *([cell(row.waited_ms, 1)] if on_gpu else []),
            *(cell(getattr(row, f"{kind}_ms"), 1) for kind in kinds.values()),
        )
        for row in profiled
    ]
    heads = ("way", "busy", *(["waited"] if on_gpu else []), *kinds)
    print_table(heads, table, "milliseconds of a step, by what they were for", cut=False)
    say(
        "Busy: time of the GPU's kernels in profiled steps; those that run at the same time count once, each in its "
        "class. Waited: the rest of the median step, in which the GPU waited for the host."
        if on_gpu
        else "On a CPU: time that the operators took themselves, profiler included."
    )


def _print_memory(rows: Sequence[TrainRow]) -> None:
    kinds = {"peak": "memory", "requested": "requested", "reserved": "reserved"}  # as columns and as ratios
    heads = (head for kind in kinds for head in (f"{kind}\nMB", "to\nstock"))
    pairs = [[(getattr(row, f"{a}_mb"), getattr(row, f"{b}_to_stock")) for a, b in kinds.items()] for row in rows]
    cells = ([text for mb, ratio in each for text in (cell(mb, 0), cell(ratio, 3, "x"))] for each in pairs)
    table = [(_short(row), *line) for row, line in zip(rows, cells, strict=True)]
    print_table(("way", *heads), table, "memory", cut=False)
    say(
        "Peak: memory allocated in timed steps, each way alone. Requested: what tensors and workspaces have asked for "
        "of it, without what the allocator leaves unsplit. Reserved: what the process holds of the card, with what it "
        "keeps for later."
    )


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.items()}
