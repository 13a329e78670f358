"""The benchmarks of the command line: `yolo-rocm bench ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .bench_train import bench_train
from .options import KEY_VALUES, AsJson, cell, is_slow, numbers, out

bench = typer.Typer(help="Benchmark against the alternatives, in one run.", no_args_is_help=True)
bench.command(
    "train", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench train yolov8n.yaml batch=64 amp=true"
)(bench_train)


@bench.command(
    "conv", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench conv yolov8n.yaml batch=64 dtype=fp16"
)
def bench_conv(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [batch=] [imgsz=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=] [out=]"),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Print every layer, not only the sums.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The vendor library and our choice alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time every convolution of a model: vendor library, vendor off, the plain patch, each algorithm, and auto."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        found = _bench_conv(words, quick)
    if as_json:
        print_json(found if layers else {key: value for key, value in found.items() if key != "layers"})
        return
    _print_conv_sums(found["totals_ms"], found["largest_workspaces_mb"], found["title"])
    if layers:
        _print_conv_layers(found["layers"])
    out.print(f"\nevery measurement: {found['table']}, drawn: {found['drawing']}")


def _bench_conv(words: list[str] | None, quick: bool) -> dict[str, Any]:
    from ..bench import conv as measure
    from ..bench.layers import OURS, default_device, dtype_named, layout_named, model_layers
    from ..bench.threads import threads_of_a_training
    from ..conv.plan import Planner

    keys = {
        "model": "yolov8n.yaml",
        "batch": 16,
        "imgsz": 640,
        "dtype": "fp32",
        "layout": "nchw",
        "engine": OURS,
    }
    given = numbers(words, {**keys, "memory_mb": None, "out": "yolo-rocm-bench"})
    device = default_device()
    # Layer by layer, each with its fastest: whether an engine is worth its memory is a question of a whole training.
    planner = Planner(given["engine"], memory_mb=given["memory_mb"], remember=False, for_training=False)
    sizes, channels_last = (given["imgsz"], given["batch"]), layout_named(given["layout"])
    dtype = dtype_named(given["dtype"])
    with threads_of_a_training(device):
        with progress(f"reading {given['model']}"):
            problems = model_layers(given["model"], *sizes, dtype, device, channels_last)
        with progress("measuring convolutions", timed=True, slow=is_slow(given)) as show:
            rows = measure.bench_conv(problems, planner, show, quick=quick)
    name = f"conv-{Path(given['model']).stem}-{given['dtype']}-{given['layout']}-b{given['batch']}-{given['imgsz']}"
    folder = Path(given["out"])
    measure.write_csv(folder / f"{name}.csv", rows, device, "yolo-rocm bench conv " + " ".join(words or []))
    measure.plot(folder / f"{name}.png", rows, f"{given['model']} {given['dtype']} batch {given['batch']}")
    title = f"{given['model']} {given['dtype']} batch {given['batch']} on {device}"
    return {
        "title": title,
        "device": device,
        "totals_ms": measure.totals(rows),
        "largest_workspaces_mb": measure.largest_workspaces(rows),
        "layers": measure.layer_table(rows),
        "table": f"{folder / name}.csv",
        "drawing": f"{folder / name}.png",
    }


def _print_conv_sums(sums: dict[str, dict[str, float]], workspaces: dict[str, float], title: str) -> None:
    columns = ("forward", "grad_input", "grad_weight", "sum")
    heads = ("way", *(f"{column} ms" for column in columns), "to vendor", "to vendor off", "largest workspace MB")
    table = Table(*heads, box=None, title=title)
    for way, passes in sums.items():
        bases = (sums.get(base) for base in ("vendor", "vendor off"))
        ratios = (None if base is None else passes["sum"] / base["sum"] for base in bases)
        cells = (f"{passes[column]:.2f}" if column in passes else "-" for column in columns)
        workspace = f"{workspaces[way]:.1f}" if way in workspaces else "-"
        table.add_row(way, *cells, *(cell(ratio, 3, "x") for ratio in ratios), workspace)
    out.print(table)
    out.print(
        "vendor, auto and single algorithms: device time without launch gaps. vendor off: calls in a row, with "
        "their gaps, as it launches kernels sample by sample. fp32 without TF32."
    )


def _print_conv_layers(entries: list[dict[str, Any]]) -> None:
    table = Table("layer", "n", "convolution", "pass", "vendor", "vendor off", "auto", "fastest", box=None)
    for entry in entries:
        ways = entry["ways"]
        single = min((ms, way) for way, ms in ways.items() if way not in ("vendor", "vendor off", "auto"))
        cells = (f"{ways[way]:.3f}" if way in ways else "-" for way in ("vendor", "vendor off", "auto"))
        fastest = f"{single[1]} {single[0]:.3f}"
        table.add_row(entry["layer"], str(entry["count"]), entry["problem"], entry["pass_"], *cells, fastest)
    out.print(table)


@bench.command(
    "loader", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench loader data.yaml workers=4 context=spawn"
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

    keys = {"workers": 2, "context": "spawn", "batch": 16, "imgsz": 640, "epochs": 3, "images": None, "batches": None}
    given = numbers(words, {"data": None, **keys, "out": "yolo-rocm-bench"}, first="data")
    if given["data"] is None:
        raise typer.BadParameter("give the YAML of a detection data set")
    wanted = measure.ways(given["data"], **{key: given[key] for key in keys})
    with stdout_for_json(as_json), progress("measuring loaders", timed=True, slow=True) as show:
        rows = measure.bench_loader(wanted, show)
    name = f"loader-{given['context']}-w{given['workers']}-b{given['batch']}-{given['imgsz']}"
    folder = Path(given["out"])
    measure.write_csv(folder / f"{name}.csv", rows, "yolo-rocm bench loader " + " ".join(words or []))
    title = f"{Path(given['data']).parent.name}, {given['workers']} workers, batch {given['batch']}"
    measure.plot(folder / f"{name}.png", rows, title)
    if as_json:
        print_json({"title": title, "ways": rows, "table": f"{folder / name}.csv", "drawing": f"{folder / name}.png"})
        return
    _print_loaders(rows, measure.BASE, measure.STAGES, title)
    out.print(f"\nevery measurement: {folder / name}.csv, drawn: {folder / name}.png")


def _print_loaders(rows: list[dict[str, Any]], base: str, stages: tuple[str, ...], title: str) -> None:
    heads = ("way", "first batch s", "to stock spawn", "images/s", "private MB", "to stock spawn", "shared MB", "note")
    table = Table(*heads, box=None, title=title)
    reference = next((row for row in rows if row["way"] == base), {})
    for row in rows:
        first, private = (_ratio(row, reference, key) for key in ("first_batch_s", "private_mb"))
        cells = (cell(row.get(key), digits) for key, digits in (("first_batch_s", 2), ("images_per_s", 1)))
        memory = (cell(row.get(key), 0) for key in ("private_mb", "shared_mb"))
        when, rate = cells
        mine, others = memory
        table.add_row(row["way"], when, first, rate, mine, private, others, row.get("error") or row.get("note", ""))
    out.print(table)
    table = Table("milliseconds an image, one process", *stages, box=None)
    for row in rows:
        if f"{stages[0]}_ms" in row:
            table.add_row(row["way"], *(cell(row[f"{stage}_ms"], 2) for stage in stages))
    out.print(table)


def _ratio(row: dict[str, Any], reference: dict[str, Any], key: str) -> str:
    mine, other = row.get(key), reference.get(key)
    return f"{mine / other:.2f}x" if mine and other else "-"
