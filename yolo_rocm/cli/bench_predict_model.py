"""`yolo-rocm bench predict-model`: latency of a network alone, as a predictor calls it, next to its rivals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, key_values, print_table, say

if TYPE_CHECKING:
    from ..bench.predict_model import Latency


def bench_predict_model(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [batch=1,8,32] [imgsz=] [half=true|false] [ways=all|NAMES] [preset=] [rounds=] [out=]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time the network alone: stock, TorchScript, torch.compile, and ours unfused, fused, and fused and recorded."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        found, title, file = _measured(words)
    if as_json:
        print_json({"title": title, "ways": [asdict(each) for each in found], "table": file})
    else:
        _print(found, title)
        say(f"\nevery number: {file}")
    if all(each.error for each in found):
        raise typer.Exit(1)


def _measured(words: list[str] | None) -> tuple[list[Latency], str, str]:
    from ..bench import predict_model, results
    from ..bench.checks import folder
    from ..bench.layers import default_device
    from ..bench.ways import PRESET
    from ..engines.plan_store import device_name

    keys: dict[str, Any] = {
        "model": "yolov8n.yaml",
        "batch": "1,8,32",
        "imgsz": 640,
        "half": True,
        "ways": "all",
        "preset": PRESET,
        "rounds": 10,
        "calls": 20,
    }
    given = key_values(words, {**keys, "out": BENCH_FOLDER})
    out, device = folder(given["out"]), default_device()
    with progress("measuring the network", timed=True, slow=True) as show:
        found = predict_model.rows({key: given[key] for key in keys}, show)
    precision = "fp16" if given["half"] and device.startswith("cuda") else "fp32"
    file = out / f"predict-model-{Path(given['model']).stem}-{precision}-{given['imgsz']}.csv"
    command = " ".join(("yolo-rocm bench predict-model", *(words or [])))
    results.write_csv(file, [asdict(each) for each in found], results.stamp(command, device=device_name(device)))
    return found, f"{given['model']} {precision} imgsz {given['imgsz']}, the network alone, on {device}", str(file)


def _print(found: list[Latency], title: str) -> None:
    table = [
        (
            str(each.batch),
            each.way,
            cell(each.median_ms, 3),
            cell(each.p95_ms, 3),
            cell(each.to_stock, 2, "x"),
            cell(each.setup_s, 1),
            "-" if each.departure is None else f"{each.departure:.1e}",
        )
        for each in found
    ]
    heads = ("batch", "way", "median ms", "p95 ms", "to stock", "set-up s", "departure")
    print_table(heads, table, title, cut=False)
    say(*(f"batch {each.batch}, {each.way}: not runnable here: {each.error}" for each in found if each.error))
