"""The command line: `yolo-rocm`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from . import __version__, cli_doctor
from .errors import YoloRocmError

if TYPE_CHECKING:
    from .hardware import Machine

app = typer.Typer(
    name="yolo-rocm",
    help="Train Ultralytics YOLO on AMD GPUs, also where MIOpen is broken.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# A pipe has no width to wrap at: tables keep one line per row there.
_out = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 240)

_KEY_VALUES = {"ignore_unknown_options": True, "allow_extra_args": True}


def _version(wanted: bool) -> None:
    if wanted:
        _out.print(f"yolo-rocm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(
    context_settings=_KEY_VALUES,
    epilog="Example: yolo-rocm train model=yolo11n.yaml data=coco8.yaml epochs=3 preset=rx5600xt",
)
def train(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CFG.yaml] [key=value]...", help="Ultralytics arguments, preset=, rocm.SECTION.KEY="),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Print every convolution and what serves it.")] = False,
) -> None:
    """Train a model under a preset."""
    from .api import run_training
    from .cfg_file import parse
    from .start import restart_if_late

    arguments = parse(words or [])
    if not arguments:
        raise typer.BadParameter("give a configuration file or key=value pairs, at least data=")
    restart_if_late(arguments.get("preset", "auto"), arguments.get("rocm"), arguments.get("device"))
    outcome = run_training(**arguments)
    if table and outcome.report is not None:
        _out.print(outcome.report.table(), markup=False)


@app.command(epilog="Example: yolo-rocm presets rx5600xt")
def presets(
    name: Annotated[str | None, typer.Argument(help="A preset's name, `auto`, or a YAML file.")] = None,
) -> None:
    """List the presets, or print every final value of one with the file that set it."""
    from . import environ
    from .hardware import detect
    from .preset import resolve

    machine = detect()
    if name is None:
        _list_presets(machine)
        return
    settings = resolve(name, machine=machine)
    table = Table("key", "value", "set by", box=None, pad_edge=False)
    for key, value, origin in settings.rows():
        table.add_row(key, str(value), origin)
    _out.print(f"{settings.why}\n")
    _out.print(table)
    for decision in environ.plan(settings.preset, machine):
        _out.print(f"{decision.name}={decision.value}: {decision.action} ({decision.reason})", markup=False)
    for note in settings.notes:
        _out.print(note, markup=False)


def _list_presets(machine: Machine) -> None:
    from .preset_list import grouped

    table = Table("preset", "gfx", "for", "evidence", box=None, pad_edge=False)
    for number, (group, rows) in enumerate(grouped(machine)):
        if number:
            table.add_row()
        table.add_row(f"[bold]{group}[/bold]")
        for row in rows:
            table.add_row(f"  {row.name}", " ".join(row.gfx), escape(row.title), escape(row.evidence))
    _out.print(table)
    from .preset import resolve

    _out.print(f"\nauto here: {resolve('auto', machine=machine).why}", markup=False)


@app.command(epilog="Example: yolo-rocm demo --epochs 5")
def demo(
    folder: Annotated[Path, typer.Option(help="Where data and results go.")] = Path("yolo-rocm-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    preset: Annotated[str, typer.Option(help="Preset to use.")] = "auto",
) -> None:
    """Make a small data set, train a nano model on whatever device there is, and say what happened."""
    from .demo import EPOCHS, make_demo_data, run_demo
    from .start import restart_if_late

    restart_if_late(preset)
    with Progress(console=_out, transient=True) as bars:
        task = bars.add_task("making images", total=None)
        data = make_demo_data(folder, lambda done, total: bars.update(task, completed=done, total=total))
    run_demo(folder, data, epochs or EPOCHS, preset, lambda line: _out.print(line, markup=False))


def _numbers(words: list[str] | None, defaults: dict[str, Any]) -> dict[str, Any]:
    """Read `[MODEL] key=value...` of bench and tune."""
    from .cfg_file import parse
    from .errors import ConfigError, nearest

    words = list(words or [])
    given = parse([f"model={words.pop(0)}", *words] if words and "=" not in words[0] else words)
    for key in given:
        if key not in defaults:
            raise ConfigError(f"unknown key '{key}'{nearest(key, defaults)} Allowed: {', '.join(defaults)}.")
    return {**defaults, **given}


@app.command(context_settings=_KEY_VALUES, epilog="Example: yolo-rocm tune yolov8n.yaml imgsz=640 batch=16 dtype=fp32")
def tune(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL] [imgsz=] [batch=] [dtype=] [engine=] [memory_mb=]")
    ] = None,
) -> None:
    """Measure the convolutions of a model ahead of time, so that the first training does not have to."""
    from .start import in_time

    with in_time():
        _tune(words)


def _tune(words: list[str] | None) -> None:
    from .bench.layers import default_device, dtype_named, model_layers
    from .conv.plan import Planner

    keys = {"model": "yolov8n.yaml", "imgsz": 640, "batch": 16, "dtype": "fp32", "engine": "auto", "memory_mb": None}
    given = _numbers(words, keys)
    device, dtype = default_device(), dtype_named(given["dtype"])
    planner = Planner(given["engine"], memory_mb=given["memory_mb"])
    layers = model_layers(given["model"], given["imgsz"], given["batch"], dtype, device)
    with Progress(console=_out, transient=True) as bars:
        task = bars.add_task("measuring convolutions", total=len(layers))
        timings = planner.tune(
            [layer.problem for layer in layers], lambda d, t: bars.update(task, completed=d, total=t)
        )
    table = Table("convolution", "forward", "grad_input", "grad_weight", box=None, pad_edge=False)
    for layer in layers:
        plan = planner.plan(layer.problem)
        table.add_row(str(layer.problem), *(getattr(plan, which).algorithm.name for which in _PASSES))
    _out.print(table)
    _out.print(f"{len(timings)} of {len(layers)} convolutions measured now, the others were known, on {device}")


_PASSES = ("forward", "grad_input", "grad_weight")
bench = typer.Typer(help="Measure, beside the peers, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command(
    "conv", context_settings=_KEY_VALUES, epilog="Example: yolo-rocm bench conv yolov8n.yaml batch=64 dtype=fp16"
)
def bench_conv(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [batch=] [imgsz=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=] [out=]"),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Print every layer, not only the sums.")] = False,
) -> None:
    """Time every convolution of a model: vendor library, vendor off, the plain patch, each algorithm, and auto."""
    from .start import in_time

    with in_time():
        _bench_conv(words, layers)


def _bench_conv(words: list[str] | None, layers: bool) -> None:
    from .bench import conv as measure
    from .bench.layers import default_device, dtype_named, model_layers
    from .conv.plan import Planner

    keys = {"model": "yolov8n.yaml", "batch": 16, "imgsz": 640, "dtype": "fp32", "layout": "nchw", "engine": "gemm"}
    given = _numbers(words, {**keys, "memory_mb": None, "out": "yolo-rocm-bench"})
    device = default_device()
    planner = Planner(given["engine"], memory_mb=given["memory_mb"], remember=False)
    problems = model_layers(
        given["model"], given["imgsz"], given["batch"], dtype_named(given["dtype"]), device, given["layout"] == "nhwc"
    )
    with Progress(console=_out, transient=True) as bars:
        task = bars.add_task("measuring convolutions", total=len(problems))
        rows = measure.bench_conv(problems, planner, lambda d, t: bars.update(task, completed=d, total=t))
    name = f"conv-{Path(given['model']).stem}-{given['dtype']}-{given['layout']}-b{given['batch']}-{given['imgsz']}"
    folder = Path(given["out"])
    measure.write_csv(folder / f"{name}.csv", rows, device, "yolo-rocm bench conv " + " ".join(words or []))
    measure.plot(folder / f"{name}.png", rows, f"{given['model']} {given['dtype']} batch {given['batch']}")
    title = f"{given['model']} {given['dtype']} batch {given['batch']} on {device}"
    _print_conv_sums(measure.totals(rows), measure.largest_workspaces(rows), title)
    if layers:
        _print_conv_layers(measure.layer_table(rows))
    _out.print(f"\nevery measurement: {folder / name}.csv, drawn: {folder / name}.png")


def _print_conv_sums(sums: dict[str, dict[str, float]], workspaces: dict[str, float], title: str) -> None:
    columns = ("forward", "grad_input", "grad_weight", "sum")
    heads = ("way", *(f"{column} ms" for column in columns), "to vendor", "to vendor off", "largest workspace MB")
    table = Table(*heads, box=None, title=title)
    for way, passes in sums.items():
        ratios = (passes["sum"] / sums[base]["sum"] for base in ("vendor", "vendor off"))
        cells = (f"{passes[column]:.2f}" if column in passes else "-" for column in columns)
        workspace = f"{workspaces[way]:.1f}" if way in workspaces else "-"
        table.add_row(way, *cells, *(f"{ratio:.3f}x" for ratio in ratios), workspace)
    _out.print(table)
    _out.print(
        "vendor, auto and single algorithms: device time without launch gaps. vendor off: single calls with them, as "
        "it launches kernels sample by sample; an upper bound of what it costs inside a training step."
    )


def _print_conv_layers(entries: list[dict[str, Any]]) -> None:
    table = Table("layer", "n", "convolution", "pass", "vendor", "vendor off", "auto", "fastest", box=None)
    for entry in entries:
        ways = entry["ways"]
        single = min((ms, way) for way, ms in ways.items() if way not in ("vendor", "vendor off", "auto"))
        cells = (f"{ways[way]:.3f}" if way in ways else "-" for way in ("vendor", "vendor off", "auto"))
        fastest = f"{single[1]} {single[0]:.3f}"
        table.add_row(entry["layer"], str(entry["count"]), entry["problem"], entry["pass_"], *cells, fastest)
    _out.print(table)


app.command(epilog="Example: yolo-rocm doctor train.log")(cli_doctor.doctor)


def main() -> None:
    """Run the command line; a mistake of the user ends in one message and exit code 1."""
    try:
        app()
    except YoloRocmError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error: {error}", markup=False)
        sys.exit(1)
