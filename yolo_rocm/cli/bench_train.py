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
            metavar="[MODEL] [batch=] [imgsz=] [amp=true|false] [engine=] [memory_mb=] [steps=] [tune_s=] [out=]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the two ways that take longest.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time whole training steps of a detector and their memory: torch as it is, vendor off, and ours."""
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
    from ..bench.layers import OURS, default_device, threads_of_a_training
    from ..bench.results import write_csv

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "amp": False, "engine": OURS, "steps": 15}
    given = key_values(words, {**keys, "memory_mb": None, "tune_s": None, "out": BENCH_FOLDER})
    device = default_device()
    ways = measure.ways(given["engine"], given["memory_mb"], quick)
    sizes = {key: given[key] for key in ("model", "batch", "imgsz", "amp", "steps", "tune_s")}
    with threads_of_a_training(device):
        bench = measure.TrainBench(device=device, **sizes)
        with progress("training steps, way after way", timed=True, slow=is_slow(given)) as show:
            bench.run(ways, lambda done, total, _: show(done, total))
    table = tables.rows(ways, given["amp"])
    dtype = "amp" if given["amp"] else "fp32"
    name = f"train-{Path(given['model']).stem}-{dtype}-b{given['batch']}-{given['imgsz']}"
    entries = tables.stamped(table, device, " ".join(("yolo-rocm bench train", *(words or []))))
    title = f"{given['model']} {dtype} batch {given['batch']} imgsz {given['imgsz']} on {entries[0]['device']}"
    numbers_file, drawing = (Path(given["out"]) / f"{name}.{ending}" for ending in ("csv", "png"))
    write_csv(numbers_file, entries, {})
    tables.plot(drawing, table, title)
    if not quiet:
        _print(table, title)
        say(tables.summary(ways, table), f"\nevery number: {numbers_file}, drawn: {drawing}")
    return entries, tables.failures(table, bench.held_mb)


def _print(rows: Sequence[TrainRow], title: str) -> None:
    table, notes = [], []
    for row in rows:
        times = (cell(row.step_ms, 1), cell(row.to_stock, 3, "x"), cell(row.to_vendor_off, 3, "x"))
        loss = f"{cell(row.loss, 4)}{' wrong' if row.wrong else ''}"
        table.append((row.way, *times, loss, cell(row.tuning_s, 1)))
        left_out = f"{row.overflows} steps overflowed" if row.overflows else ""
        if note := "; ".join(part for part in (row.error and f"failed: {row.error}", row.served, left_out) if part):
            notes.append(f"{row.way}: {note}")
    print_table(("way", "step ms", "to stock", "to vendor\noff", "loss", "tuning s"), table, title, cut=False)
    say(
        *notes,
        "A step is forward, loss, backward, clipping and SGD; the median of interleaved turns, TF32 off, the vendor "
        "library searching for its fastest kernels (cudnn.benchmark). Ratios are to the faster layout of stock and of "
        "vendor off, in time and in memory. Loss: after two steps.",
    )
    if any(row.peak_mb for row in rows):
        _print_memory(rows)


def _print_memory(rows: Sequence[TrainRow]) -> None:
    kinds = {"peak": "memory", "requested": "requested", "reserved": "reserved"}  # as columns and as ratios
    heads = (head for kind in kinds for head in (f"{kind}\nMB", "to stock"))
    pairs = [[(getattr(row, f"{a}_mb"), getattr(row, f"{b}_to_stock")) for a, b in kinds.items()] for row in rows]
    cells = ([text for mb, ratio in each for text in (cell(mb, 0), cell(ratio, 3, "x"))] for each in pairs)
    table = [(row.way, *line) for row, line in zip(rows, cells, strict=True)]
    print_table(("way", *heads), table, "memory", cut=False)
    say(
        "Peak: memory allocated in timed steps, each way alone. Requested: what tensors and workspaces have asked for "
        "of it, without what the allocator leaves unsplit. Reserved: what the process holds of the card, with what it "
        "keeps for later."
    )


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.items()}
