"""The command line: `yolo-rocm`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from .._version import __version__
from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from . import doctor, overhead, report, run
from .bench import bench
from .errors import DEBUG, end_in_one_line, split_debug
from .modes import add_modes
from .options import KEY_VALUES, AsJson, in_our_order, is_slow, numbers, out

if TYPE_CHECKING:
    from ..hardware import Machine

app = typer.Typer(
    name="yolo-rocm",
    help="Train Ultralytics YOLO on AMD GPUs, even where MIOpen is broken.",
    no_args_is_help=True,
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
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the whole traceback of an error.")] = False,
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
    from ..api import run_training
    from ..preset.cfg_file import TASKS, parse
    from ..preset.restart import restart_if_late

    arguments = parse(words or [])
    if not arguments:
        raise typer.BadParameter("give a configuration file or key=value pairs, at least data=")
    if arguments.get("task") in TASKS and "model" not in arguments:
        arguments["model"] = TASKS[arguments["task"]]
    restart_if_late(arguments.get("preset", "auto"), arguments.get("rocm"), arguments.get("device"))
    outcome = run_training(**arguments)
    from ..ultralytics_hooks import reports

    if table and outcome.report is not None and reports():
        out.print(outcome.report.table(), markup=False)


add_modes(app)


@app.command(epilog="Example: yolo-rocm presets rx5600xt")
def presets(
    name: Annotated[str | None, typer.Argument(help="A preset's name, `auto`, or a YAML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the presets, or print every final value of one with the file that set it."""
    from ..hardware import detect
    from ..preset import variables
    from ..preset.schema import resolve

    machine = detect()
    if name is None:
        _list_presets(machine, as_json)
        return
    settings = resolve(name, machine=machine)
    decisions = variables.plan(settings.preset, machine)
    if as_json:
        told = [{key: getattr(each, key) for key in ("name", "value", "action", "reason")} for each in decisions]
        print_json({**settings.as_dict(), "variables": told})
        return
    table = Table("key", "value", "set by", box=None, pad_edge=False)
    for key, value, origin in settings.rows():
        table.add_row(key, str(value), origin)
    out.print(f"{settings.why}\n")
    out.print(table)
    for decision in decisions:
        out.print(f"{decision.name}={decision.value}: {decision.action} ({decision.reason})", markup=False)
    if "batch" in settings.preset.train:
        out.print("train.batch is for one GPU: on several it is multiplied by their number", markup=False)
    for note in settings.notes:
        out.print(note, markup=False)


def _list_presets(machine: Machine, as_json: bool) -> None:
    from ..preset.listing import grouped
    from ..preset.schema import resolve

    why = resolve("auto", machine=machine).why
    if as_json:
        listed = [{"group": group, **asdict(row)} for group, rows in grouped(machine) for row in rows]
        print_json({"presets": listed, "auto": why})
        return
    table = Table("preset", "gfx", "for", "evidence", box=None, pad_edge=False)
    for number, (group, rows) in enumerate(grouped(machine)):
        if number:
            table.add_row()
        table.add_row(f"[bold]{group}[/bold]")
        for row in rows:
            table.add_row(f"  {row.name}", " ".join(row.gfx), escape(row.title), escape(row.evidence))
    out.print(table)
    out.print(f"\nauto here: {why}", markup=False)


@app.command(epilog="Example: yolo-rocm demo --epochs 5")
def demo(
    folder: Annotated[Path, typer.Option(help="Where data and results go.")] = Path("yolo-rocm-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    preset: Annotated[str, typer.Option(help="Preset to use.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Make a small data set, train a nano model on whatever device there is, and say what happened."""
    from ..bench.demo import EPOCHS, make_demo_data, run_demo
    from ..preset.restart import restart_if_late

    restart_if_late(preset)
    with stdout_for_json(as_json):
        with progress("making images") as show:
            data = make_demo_data(folder, show)
        facts = run_demo(folder, data, epochs or EPOCHS, preset, lambda line: out.print(line, markup=False))
    if as_json:
        print_json(facts)


@app.command(context_settings=KEY_VALUES, epilog="Example: yolo-rocm tune yolov8n.yaml imgsz=640 batch=16 dtype=fp32")
def tune(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [imgsz=] [batch=] [dtype=] [layout=nchw|nhwc] [engine=] [memory_mb=]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the convolutions of a model ahead of time, so that the first training does not have to."""
    from ..preset.restart import in_time

    with in_time(), stdout_for_json(as_json):
        rows, facts = _tune(words)
    if as_json:
        print_json({**facts, "convolutions": rows})
        return
    passes = ("forward", "grad_input", "grad_weight")
    table = Table("convolution", *passes, box=None, pad_edge=False)
    for row in rows:
        times = row["times_ms"]
        table.add_row(row["convolution"], *(f"{row[w]} {times[w]:.3f} ms" if w in times else row[w] for w in passes))
    out.print(table)
    told = f"{facts['measured']} of {len(rows)} convolutions measured now, {facts['known']} known before"
    if facts["left"]:
        told += f", {facts['left']} left as time or memory ran out: the same command goes on with them"
    out.print(f"{told}, on {facts['device']}")


def _times(served: dict[str, str], timings: dict[str, Any]) -> dict[str, float]:
    """Return the times of the winners, as far as they have been measured now."""
    return {
        which: timing.milliseconds
        for which, name in served.items()
        for timing in timings.get(which, [])
        if timing.algorithm == name
    }


def _tune(words: list[str] | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return what serves each convolution and in what time, and how many have been measured."""
    from ..bench.layers import default_device, dtype_named, layout_named, model_layers
    from ..bench.threads import threads_of_a_training
    from ..conv.plan import DEFAULT_TUNE_SECONDS, Planner

    keys = {"model": "yolov8n.yaml", "imgsz": 640, "batch": 16, "dtype": "fp32", "layout": "nchw", "engine": "auto"}
    given = numbers(words, {**keys, "memory_mb": None})
    device, dtype, channels_last = default_device(), dtype_named(given["dtype"]), layout_named(given["layout"])
    planner = Planner(given["engine"], memory_mb=given["memory_mb"])
    with threads_of_a_training(device):
        with progress(f"reading {given['model']}"):
            layers = model_layers(given["model"], given["imgsz"], given["batch"], dtype, device, channels_last)
        problems = [layer.problem for layer in layers]
        waiting = len(planner.unmeasured(problems))
        slow = bool(waiting) and is_slow(given)
        with progress("measuring convolutions", timed=True, slow=slow, limit_s=DEFAULT_TUNE_SECONDS) as show:
            timings = planner.tune(problems, show)
    rows: list[dict[str, Any]] = []
    for problem in problems:
        plan = planner.plan(problem)
        served = {which: getattr(plan, which).algorithm.name for which in ("forward", "grad_input", "grad_weight")}
        rows.append({"convolution": str(problem), **served, "times_ms": _times(served, timings.get(problem, {}))})
    left = waiting - len(timings)
    facts = {"device": device, "measured": len(timings), "known": len(rows) - waiting, "left": left}
    return rows, facts


@app.command(epilog="Example: yolo-rocm loader --preset rx5600xt")
def loader(
    preset: Annotated[str, typer.Option(help="Preset whose settings to show.")] = "auto",
    verify: Annotated[
        bool, typer.Option("--verify", help="Load batches twice and compare them byte for byte.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print how batches will be loaded here: workers and why, start method, memory, and the preset's settings."""
    from ..data.describe import loader_facts
    from ..data.transport import HAS_MEMFD
    from ..data.worker_count import recommended_workers
    from ..preset.schema import resolve

    settings = resolve(preset)
    section = settings.preset.loader
    asked = "loader.workers" in settings.explicit
    found = recommended_workers(wanted=section.workers, asked=asked, memfd=HAS_MEMFD)
    facts = loader_facts(found, section.model_dump())
    checked = None
    if verify:
        from ..data.verify import verify_reproducibility

        with stdout_for_json(as_json), progress("loading batches twice") as show:
            checked = verify_reproducibility(progress=show)
    if as_json:
        data = {**facts.as_dict(), **({} if checked is None else {"reproducible": checked.same})}
        print_json(data)
        return
    table = Table("what", "value", box=None, pad_edge=False)
    for name, value in facts.rows():
        table.add_row(name, value)
    out.print(table)
    if checked is not None:
        out.print(str(checked), markup=False)


bench.command(
    "overhead", context_settings=KEY_VALUES, epilog="Example: yolo-rocm bench overhead yolov8n.yaml imgsz=160 rounds=20"
)(overhead.bench_overhead)
app.add_typer(bench, name="bench")


app.command(epilog="Example: yolo-rocm doctor train.log")(doctor.doctor)
app.command(epilog="Example: yolo-rocm report runs/detect/train runs/detect/train2")(report.report)
app.command(
    cls=run.OptionsBeforeTarget,
    epilog="Example: yolo-rocm run --preset rx5600xt --rocm conv.engine=gemm train.py --epochs 3",
)(run.run)


def main() -> None:
    """Run the command line; a mistake of the user ends in one message and exit code 1; `--debug` shows all of it."""
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None  # of --help and of wrong options; see `console`
    debug, words = split_debug(sys.argv[1:])
    try:
        app([*words[:debug], *in_our_order(words[debug:])])
    except Exception as error:
        if debug:
            raise
        end_in_one_line(error)
