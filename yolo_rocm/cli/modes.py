"""`yolo-rocm val`, `predict`, `track`, `export` and `benchmark`: Ultralytics' modes under a preset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from .options import KEY_VALUES, out

# Mode, what it does, its example.
_COMMANDS: Final = (
    ("val", "Validate a model under a preset.", "model=best.pt data=coco8.yaml preset=rx5600xt"),
    ("predict", "Predict images or videos under a preset, and save them.", "model=best.pt source=photos imgsz=640"),
    ("track", "Track objects through a video under a preset, and save it.", "model=best.pt source=street.mp4"),
    ("export", "Export a model under a preset, and print the file.", "model=best.pt format=onnx imgsz=640"),
    ("benchmark", "Export, validate and time a model under a preset.", "model=best.pt format=torchscript imgsz=640"),
)


def add_modes(app: typer.Typer) -> None:
    """Add a command for each mode."""
    for mode, help_text, example in _COMMANDS:
        app.command(
            mode,
            help=help_text,
            context_settings=KEY_VALUES,
            epilog=f"Example: yolo-rocm {mode} {example}",
        )(_command(mode))


def _command(mode: str) -> Callable[..., None]:
    def command(
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[CFG.yaml] [key=value]...", help="Ultralytics arguments, preset=, rocm.SECTION.KEY="
            ),
        ] = None,
        table: Annotated[bool, typer.Option("--table", help="Print every convolution and what serves it.")] = False,
    ) -> None:
        from ..preset.cfg_file import parse
        from ..preset.restart import restart_if_late
        from ..session.modes import run_mode

        arguments = parse(words or [])
        if not arguments:
            raise typer.BadParameter("give a configuration file or key=value pairs, at least model=")
        restart_if_late(arguments.get("preset", "auto"), arguments.get("rocm"), arguments.get("device"))
        outcome = run_mode(mode, **arguments)
        if table and outcome.report is not None:
            out.print(outcome.report.table(), markup=False)
        if mode == "export":  # the last line, for scripts; Ultralytics logs the other results
            out.print(str(outcome.result), markup=False)

    return command
