"""`yolo-rocm bench memory`: the largest batch that a card of some memory can train with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, key_values, print_table, say

if TYPE_CHECKING:
    from ..bench.memory import Holds


def bench_memory(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL] [vram_gb=] [imgsz=] [amp=true|false] [memory_mb=] [out=]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the largest batch that a card of some memory can train with: stock, ours and ours lean."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        found, title, file = _bench_memory(words)
    if as_json:
        print_json({"title": title, "ways": [asdict(each) for each in found], "table": file})
    else:
        _print(found, title)
        say(f"\nevery number: {file}")
    if any(each.error for each in found):
        raise typer.Exit(1)


def _bench_memory(words: list[str] | None) -> tuple[list[Holds], str, str]:
    from ..bench import memory, results
    from ..bench.checks import folder
    from ..bench.layers import default_device
    from ..engines.plan_store import device_name

    device = default_device()
    keys: dict[str, Any] = {"model": "yolov8n.yaml", "vram_gb": memory.usual_gb(device), "imgsz": 640, "amp": False}
    keys["memory_mb"] = None  # that of the preset `generic`
    given = key_values(words, {**keys, "out": BENCH_FOLDER})
    out = folder(given["out"])
    with progress("finding the largest batch", timed=True) as show:
        found = memory.rows({key: given[key] for key in keys}, device, show)
    dtype = "amp" if given["amp"] else "fp32"
    file = out / f"memory-{Path(given['model']).stem}-{dtype}-{given['vram_gb']:g}gb-{given['imgsz']}.csv"
    command = " ".join(("yolo-rocm bench memory", *(words or [])))
    results.write_csv(file, [asdict(each) for each in found], results.stamp(command, device=device_name(device)))
    title = f"{given['model']} {dtype} imgsz {given['imgsz']} in {given['vram_gb']:g} GB, {found[0].how} on {device}"
    return found, title, str(file)


def _print(found: list[Holds], title: str) -> None:
    from ..bench.memory import COUNTED

    table = [
        (
            each.way,
            "-" if each.batch is None else f"{each.batch}{' or more' if each.at_limit else ''}",
            cell(each.to_stock, 2, "x"),
            cell(each.image_mb, 1),
            cell(each.fixed_mb, 0),
        )
        for each in found
    ]
    print_table(("way", "largest batch", "to stock", "MB an image", "MB besides"), table, title, cut=False)
    say(*(f"{each.way}: not runnable here: {each.error}" for each in found if each.error))
    if found[0].how == COUNTED:
        say(
            "Counted on a CPU, not measured: what a forward pass keeps for backward, parameters, gradients, momentum, "
            "and for ours the largest workspace that a pass may take (memory_mb=; presets of small cards have less). "
            "Gradients of activations, what a vendor library takes and what the allocator leaves unused come on top."
        )
    else:
        say(
            "Measured: whole steps of each batch in a process of its own, torch's allocator capped; the driver itself "
            "takes some hundred MB more. MB: by a line through the smallest and the largest batch that fit."
        )
