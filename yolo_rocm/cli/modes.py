"""`yolo-rocm train`, `val`, `predict`, `track`, `export` and `benchmark`: Ultralytics' modes under a preset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from .options import KEY_VALUES, say

# What each mode does, and its example.
_COMMANDS: Final = {
    "train": ("Train a model under a preset.", "model=yolo11n.yaml data=coco8.yaml epochs=3 preset=rx5600xt"),
    "val": ("Validate a model under a preset.", "model=best.pt data=coco8.yaml preset=rx5600xt"),
    "predict": (
        "Predict images or videos under a preset, and save them; engine=auto takes the fastest engine that agrees.",
        "model=best.pt source=photos imgsz=640 engine=auto",
    ),
    "track": ("Track objects through a video under a preset, and save it.", "model=best.pt source=street.mp4"),
    "export": (
        "Export a model, check it against torch where this package predicts with it, and print the file.",
        "model=best.pt format=ncnn imgsz=640",
    ),
    "benchmark": ("Export, validate and time a model under a preset.", "model=best.pt format=torchscript imgsz=640"),
}


def add_modes(app: typer.Typer, panel: str) -> None:
    """Add a command for each mode to a panel of the help."""
    for mode, (text, example) in _COMMANDS.items():
        epilog = f"Example: yolo-rocm {mode} {example}"
        app.command(mode, help=text, context_settings=KEY_VALUES, rich_help_panel=panel, epilog=epilog)(_command(mode))


def _command(mode: str) -> Callable[..., None]:
    def command(
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[CFG.yaml] [key=value]...",
                help="Ultralytics arguments, preset=, rocm.SECTION.KEY=",
            ),
        ] = None,
        table: Annotated[bool, typer.Option("--table", help="Print every convolution and what computes it.")] = False,
    ) -> None:
        # All before `restart_if_late`: it looks at what is imported.
        from ..api import run_mode, run_training
        from ..preset.cfg_file import TASKS, parse, with_file
        from ..preset.restart import restart_if_late
        from ..session.given import Given, given_before, with_newest
        from ..ultralytics_hooks.ranks import is_main_rank

        given = with_file(parse(words or []))
        if not given:
            least = "data=" if mode == "train" else "model="
            raise typer.BadParameter(f"give a configuration file or key=value pairs, at least {least}")
        under = Given(given.get("preset", "auto"), given.get("rocm"))
        if mode == "train" and given.get("resume"):
            given["model"] = with_newest(given.get("model"), given["resume"])
            under = under.over(given_before(given["model"], given["resume"]))
        restart_if_late(under.preset, under.rocm, given.get("device"))
        if mode == "train" and given.get("task") in TASKS:
            given.setdefault("model", TASKS[given["task"]])
        began = time.perf_counter()
        outcome: Any = run_training(**given, relaunched=True) if mode == "train" else run_mode(mode, **given)
        if table and outcome.report is not None and is_main_rank():
            say(outcome.report.table())
            if outcome.inference is not None and outcome.inference.served:
                say(outcome.inference.table())
        if mode == "train" and outcome.folder is not None and is_main_rank():
            say(*_last_lines(outcome.result, outcome.folder, time.perf_counter() - began))
        if mode == "export":  # the last line, for scripts; Ultralytics logs the other results
            say(str(outcome.result))

    return command


def _last_lines(metrics: Any, folder: Path, seconds: float) -> Iterator[str]:
    """Yield what a training has come to, where it is, and what to type next."""
    from ..session.given import predict_command
    from ..ultralytics_hooks.trainers import scores

    page = folder / "report.html"
    files = [folder / "weights" / name for name in ("best.pt", "last.pt")]
    weights = next((file for file in files if file.exists()), None)
    facts = [f"{name} {value:.3f}" for name, value in scores(metrics).items()]
    yield ", ".join([*facts, f"{seconds:.0f} s", *(str(file) for file in (weights, page) if file and file.exists())])
    if weights is not None:
        yield f"next: {predict_command(weights, 'IMAGES')}"
