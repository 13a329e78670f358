"""`yolo-rocm bench conv`: every convolution of a model, one way next to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..conv.names import PASSES
from ..utils.console import console, print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, is_slow, key_values, print_table, say


def bench_conv(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [batch=] [imgsz=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=] "
            "[rivals=inductor,flag_gems|all] [out=]"
        ),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Print every layer, not only the sums.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The vendor library, our choice, and rivals= alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time every convolution of a model: vendor library, vendor off, the plain patch, each algorithm, auto, rivals."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        found = _bench_conv(words, quick)
    if as_json:
        print_json(found if layers else {key: value for key, value in found.items() if key != "layers"})
    else:
        _print(found, layers)
    if found["interrupted"]:
        console(stderr=True).print(found["interrupted"], markup=False)
        raise typer.Exit(1)


def _bench_conv(words: list[str] | None, quick: bool) -> dict[str, Any]:
    from ..bench import conv as measure
    from ..bench.checks import check, folder
    from ..bench.layers import OURS, layers_of
    from ..bench.rival_kernels import chosen
    from ..bench.rival_table import rival_table
    from ..conv.plan import Planner

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "dtype": "fp32", "layout": "nchw", "engine": OURS}
    given = key_values(words, {**keys, "memory_mb": None, "rivals": None, "out": BENCH_FOLDER})
    check({"memory_mb": given["memory_mb"]}, optional=("memory_mb",))
    out, rivals = folder(given["out"]), chosen(given["rivals"])
    # Layer by layer, each with its fastest: whether an engine is worth its memory is a question of a whole training.
    planner = Planner(str(given["engine"]), memory_mb=given["memory_mb"], remember=False, for_training=False)
    with (
        layers_of(given) as (device, layers),
        progress("measuring convolutions", timed=True, slow=is_slow(given)) as show,
    ):
        part = ""
        try:
            rows = measure.bench_conv(layers, planner, show, quick=quick, rivals=rivals)
        except measure.EndedEarly as ended:
            rows, part = ended.rows, f"{ended.layers} of {len(layers)} distinct convolutions"
    name = f"conv-{Path(given['model']).stem}-{given['dtype']}-{given['layout']}-b{given['batch']}-{given['imgsz']}"
    name = f"{name}-part" if part else name  # not over what an earlier run has measured whole
    table, drawing = (out / f"{name}.{ending}" for ending in ("csv", "png"))
    title = f"{given['model']} {given['dtype']} {given['layout']} batch {given['batch']} imgsz {given['imgsz']}"
    versions = {rival.name: "" if rival.missing(device) else rival.version() for rival in rivals}
    measure.write_csv(table, rows, device, " ".join(("yolo-rocm bench conv", *(words or []))), **versions)
    measure.plot(drawing, rows, title, part or "all convolutions")
    return {
        "title": f"{title} on {device}{part and f', {part}'}",
        "device": device,
        "dtype": given["dtype"],
        "interrupted": part and f"interrupted: {part} were measured, and sums are of these alone",
        "totals_ms": measure.totals(rows),
        "largest_workspaces_mb": measure.largest_workspaces(rows),
        "rivals": rival_table(rows, versions),
        "rival_versions": versions,
        "layers": measure.layer_table(rows),
        "table": str(table),
        "drawing": str(drawing),
    }


def _print(found: dict[str, Any], layers: bool) -> None:
    _print_sums(found["totals_ms"], found["largest_workspaces_mb"], found["title"])
    say(_times(found))
    if found["rivals"]:
        _print_rivals(found["rivals"], found["rival_versions"])
    if layers:
        _print_layers(found["layers"], tuple(dict.fromkeys(entry["rival"] for entry in found["rivals"])))
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


def _times(found: dict[str, Any]) -> str:
    """Say what the times of a table are."""
    if found["device"] == "cpu":
        return "Times are medians of calls by the clock."
    ways, single = found["totals_ms"], set(found["largest_workspaces_mb"]) - set(found["totals_ms"])
    names = [*(way for way in ("vendor", "auto") if way in ways), *(["single algorithms"] if single else [])]
    said = [f"{', '.join(names)}: device time without launch gaps."]
    if "vendor off" in ways:
        said.append("vendor off: calls in a row, with their gaps, as it launches kernels sample by sample.")
    if found["dtype"] == "fp32":
        said.append("fp32 without TF32.")
    return " ".join(said)


def _print_rivals(entries: list[dict[str, Any]], versions: dict[str, str]) -> None:
    from ..bench.rival_table import reasons, verdict_of

    heads = (
        "rival",
        "pass",
        "layers",
        "right",
        "wrong",
        "not runnable here",
        "ms",
        "auto on the same ms",
        "auto to it",
    )
    counts = ("layers", "right", "wrong", "not_runnable")
    rows = [
        (
            entry["rival"],
            entry["pass"],
            *(str(entry[count]) for count in counts),
            verdict_of(entry) or cell(entry["ms"], 2),
            cell(entry["auto_ms"], 2),
            cell(entry["auto_ms"] / entry["ms"] if entry["ms"] else None, 3, "x"),
        )
        for entry in entries
    ]
    say("")
    print_table(heads, rows)
    say(*(f"{rival}: {version}" for rival, version in versions.items() if version), *reasons(entries))


def _print_layers(entries: list[dict[str, Any]], rivals: tuple[str, ...]) -> None:
    peers = ("vendor", "vendor off", "auto", *rivals)
    rows = []
    for entry in entries:
        ways = entry["ways"]
        single = [(ms, way) for way, ms in ways.items() if way not in peers]
        fastest = "{1} {0:.3f}".format(*min(single)) if single else "-"  # --quick has none
        cells = (ways[way] if isinstance(ways.get(way), str) else cell(ways.get(way), 3) for way in peers)
        rows.append((entry["layer"], str(entry["count"]), entry["problem"], entry["pass_"], *cells, fastest))
    print_table(("layer", "n", "convolution", "pass", *peers, "fastest"), rows)
