"""The benchmarks of the command line: `yolo-rocm bench conv`, `loader`, `memory` and `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..conv.names import PASSES
from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .bench_memory import bench_memory
from .bench_train import bench_train
from .options import BENCH_FOLDER, KEY_VALUES, AsJson, cell, is_slow, key_values, print_table, say

bench = typer.Typer(help="Benchmark against the alternatives, in one run.", no_args_is_help=True)
bench.command(
    "train", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench train yolov8n.yaml batch=64 amp=true"
)(bench_train)
bench.command("memory", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench memory yolov8s.yaml vram_gb=6")(
    bench_memory
)


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
    say(f"\nevery measurement: {found['table']}, drawn: {found['drawing']}")


def _bench_conv(words: list[str] | None, quick: bool) -> dict[str, Any]:
    from ..bench import conv as measure
    from ..bench.layers import OURS, layers_of
    from ..conv.plan import Planner

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "dtype": "fp32", "layout": "nchw", "engine": OURS}
    given = key_values(words, {**keys, "memory_mb": None, "out": BENCH_FOLDER})
    # Layer by layer, each with its fastest: whether an engine is worth its memory is a question of a whole training.
    planner = Planner(given["engine"], memory_mb=given["memory_mb"], remember=False, for_training=False)
    with (
        layers_of(given) as (device, layers),
        progress("measuring convolutions", timed=True, slow=is_slow(given)) as show,
    ):
        rows = measure.bench_conv(layers, planner, show, quick=quick)
    name = f"conv-{Path(given['model']).stem}-{given['dtype']}-{given['layout']}-b{given['batch']}-{given['imgsz']}"
    table, drawing = (Path(given["out"]) / f"{name}.{ending}" for ending in ("csv", "png"))
    title = f"{given['model']} {given['dtype']} batch {given['batch']}"
    measure.write_csv(table, rows, device, " ".join(("yolo-rocm bench conv", *(words or []))))
    measure.plot(drawing, rows, title)
    return {
        "title": f"{title} on {device}",
        "device": device,
        "totals_ms": measure.totals(rows),
        "largest_workspaces_mb": measure.largest_workspaces(rows),
        "layers": measure.layer_table(rows),
        "table": str(table),
        "drawing": str(drawing),
    }


def _print_conv_sums(sums: dict[str, dict[str, float]], workspaces: dict[str, float], title: str) -> None:
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
    say(
        "vendor, auto and single algorithms: device time without launch gaps. vendor off: calls in a row, with "
        "their gaps, as it launches kernels sample by sample. fp32 without TF32."
    )


def _print_conv_layers(entries: list[dict[str, Any]]) -> None:
    peers = ("vendor", "vendor off", "auto")
    rows = []
    for entry in entries:
        ways = entry["ways"]
        ms, fastest = min((ms, way) for way, ms in ways.items() if way not in peers)
        cells = (cell(ways.get(way), 3) for way in peers)
        rows.append(
            (entry["layer"], str(entry["count"]), entry["problem"], entry["pass_"], *cells, f"{fastest} {ms:.3f}")
        )
    print_table(("layer", "n", "convolution", "pass", *peers, "fastest"), rows)


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
    from ..preset.resolve import resolve

    context = resolve("auto").preset.loader.context
    keys = {"workers": 2, "context": context, "batch": 16, "imgsz": 640, "epochs": 3, "images": None, "batches": None}
    given = key_values(words, {"data": None, **keys, "out": BENCH_FOLDER}, first="data")
    if given["data"] is None:
        raise typer.BadParameter("give the YAML of a detection data set")
    wanted = measure.ways(given["data"], **{key: given[key] for key in keys})
    with stdout_for_json(as_json), progress("measuring loaders", timed=True, slow=True) as show:
        rows = measure.bench_loader(wanted, show)
    name = f"loader-{given['context']}-w{given['workers']}-b{given['batch']}-{given['imgsz']}"
    table, drawing = (Path(given["out"]) / f"{name}.{ending}" for ending in ("csv", "png"))
    title = f"{Path(given['data']).parent.name}, {given['workers']} workers, batch {given['batch']}"
    measure.write_csv(table, rows, " ".join(("yolo-rocm bench loader", *(words or []))))
    measure.plot(drawing, rows, title)
    if as_json:
        print_json({"title": title, "ways": rows, "table": str(table), "drawing": str(drawing)})
        return
    _print_loaders(rows, measure.BASE, measure.STAGES, title)
    say(f"\nevery measurement: {table}, drawn: {drawing}")


def _print_loaders(rows: list[dict[str, Any]], base: str, stages: tuple[str, ...], title: str) -> None:
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
    timed = (row for row in rows if f"{stages[0]}_ms" in row)
    table = ((row["way"], *(cell(row[f"{stage}_ms"], 2) for stage in stages)) for row in timed)
    print_table(("milliseconds an image, one process", *stages), table)
