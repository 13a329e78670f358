"""The command line: `yolo-rocm`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from . import __version__, cli_doctor, cli_report, cli_run
from .cli_bench import bench
from .cli_modes import add_modes
from .cli_words import KEY_VALUES, numbers, out
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


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"yolo-rocm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(
    context_settings=KEY_VALUES,
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
    from .ultralytics_hooks import reports

    if table and outcome.report is not None and reports():
        out.print(outcome.report.table(), markup=False)


add_modes(app)


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
    out.print(f"{settings.why}\n")
    out.print(table)
    for decision in environ.plan(settings.preset, machine):
        out.print(f"{decision.name}={decision.value}: {decision.action} ({decision.reason})", markup=False)
    for note in settings.notes:
        out.print(note, markup=False)


def _list_presets(machine: Machine) -> None:
    from .preset_list import grouped

    table = Table("preset", "gfx", "for", "evidence", box=None, pad_edge=False)
    for number, (group, rows) in enumerate(grouped(machine)):
        if number:
            table.add_row()
        table.add_row(f"[bold]{group}[/bold]")
        for row in rows:
            table.add_row(f"  {row.name}", " ".join(row.gfx), escape(row.title), escape(row.evidence))
    out.print(table)
    from .preset import resolve

    out.print(f"\nauto here: {resolve('auto', machine=machine).why}", markup=False)


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
    with Progress(console=out, transient=True) as bars:
        task = bars.add_task("making images", total=None)
        data = make_demo_data(folder, lambda done, total: bars.update(task, completed=done, total=total))
    run_demo(folder, data, epochs or EPOCHS, preset, lambda line: out.print(line, markup=False))


@app.command(context_settings=KEY_VALUES, epilog="Example: yolo-rocm tune yolov8n.yaml imgsz=640 batch=16 dtype=fp32")
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
    given = numbers(words, keys)
    device, dtype = default_device(), dtype_named(given["dtype"])
    planner = Planner(given["engine"], memory_mb=given["memory_mb"])
    layers = model_layers(given["model"], given["imgsz"], given["batch"], dtype, device)
    with Progress(console=out, transient=True) as bars:
        task = bars.add_task("measuring convolutions", total=len(layers))
        timings = planner.tune(
            [layer.problem for layer in layers], lambda d, t: bars.update(task, completed=d, total=t)
        )
    passes = ("forward", "grad_input", "grad_weight")
    table = Table("convolution", *passes, box=None, pad_edge=False)
    for layer in layers:
        plan = planner.plan(layer.problem)
        table.add_row(str(layer.problem), *(getattr(plan, which).algorithm.name for which in passes))
    out.print(table)
    out.print(f"{len(timings)} of {len(layers)} convolutions measured now, the others were known, on {device}")


@app.command(epilog="Example: yolo-rocm loader --preset rx5600xt")
def loader(
    preset: Annotated[str, typer.Option(help="Preset whose settings to show.")] = "auto",
    verify: Annotated[
        bool, typer.Option("--verify", help="Load batches twice and compare them byte for byte.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how batches will be loaded here: workers and why, start method, memory, and the preset's settings."""
    from .data.describe import loader_facts
    from .data.transport import HAS_MEMFD
    from .data.workers import recommended_workers
    from .preset import resolve

    settings = resolve(preset)
    section = settings.preset.loader
    asked = "loader.workers" in settings.explicit
    found = recommended_workers(wanted=section.workers, asked=asked, memfd=HAS_MEMFD)
    facts = loader_facts(found, section.model_dump())
    checked = None
    if verify:
        from .data.verify import verify_reproducibility

        checked = verify_reproducibility()
    if as_json:
        data = {**facts.as_dict(), **({} if checked is None else {"reproducible": checked.same})}
        out.print_json(json.dumps(data))
        return
    table = Table("what", "value", box=None, pad_edge=False)
    for name, value in facts.rows():
        table.add_row(name, value)
    out.print(table)
    if checked is not None:
        out.print(str(checked), markup=False)


app.add_typer(bench, name="bench")


app.command(epilog="Example: yolo-rocm doctor train.log")(cli_doctor.doctor)
app.command(epilog="Example: yolo-rocm report runs/detect/train runs/detect/train2")(cli_report.report)
app.command(
    cls=cli_run.OptionsBeforeTarget,
    epilog="Example: yolo-rocm run --preset rx5600xt --rocm conv.engine=gemm train.py --epochs 3",
)(cli_run.run)


def main() -> None:
    """Run the command line; a mistake of the user ends in one message and exit code 1."""
    try:
        app()
    except YoloRocmError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error: {error}", markup=False)
        sys.exit(1)
