"""The command line: `yolo-rocm`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .._version import __version__
from ..utils.console import console
from ..utils.log_lines import log_lines
from .bench import bench
from .certify import certify
from .demo import demo
from .doctor import doctor
from .env import env
from .errors import DEBUG, end_in_one_line, split_debug
from .loader import loader
from .modes import add_modes
from .options import KEY_VALUES, PlainFlags, in_our_order, say
from .presets import presets
from .report import report
from .run import OptionsBeforeTarget, run
from .setup import setup
from .tune import tune

app = typer.Typer(
    name="yolo-rocm",
    cls=PlainFlags,
    help="Train Ultralytics YOLO on AMD GPUs, even where MIOpen is broken.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"yolo-rocm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the whole traceback of an error.")] = False,
) -> None:
    pass


# The panels of --help, in this order.
_START, _USE, _MEASURE = "Start", "Use", "Measure"
app.command(rich_help_panel=_START, epilog='Example: yolo-rocm setup --card "RX 7900 XTX"')(setup)
app.command(rich_help_panel=_START, epilog="Example: yolo-rocm doctor train.log")(doctor)
app.command(rich_help_panel=_START, epilog="Example: yolo-rocm demo --epochs 5")(demo)
app.command(rich_help_panel=_START, epilog="Example: yolo-rocm presets rx5600xt")(presets)
app.command(rich_help_panel=_START, epilog="Example: yolo-rocm env")(env)
add_modes(app, _USE)
app.command(
    cls=OptionsBeforeTarget,
    rich_help_panel=_USE,
    epilog="Example: yolo-rocm run --preset rx5600xt --rocm conv.engine=gemm train.py --epochs 3",
)(run)
app.command(rich_help_panel=_USE, epilog="Example: yolo-rocm report runs/detect/train runs/detect/train2")(report)
app.command(
    context_settings=KEY_VALUES,
    rich_help_panel=_MEASURE,
    epilog="Example: yolo-rocm tune yolov8n.yaml imgsz=640 batch=16 dtype=fp32",
)(tune)
app.add_typer(bench, name="bench", rich_help_panel=_MEASURE)
app.command(rich_help_panel=_MEASURE, epilog="Example: yolo-rocm loader --preset rx5600xt")(loader)
app.command(rich_help_panel=_MEASURE, epilog="Example: yolo-rocm certify --out my-card.json")(certify)


def _show(event: str, line: str, warning: bool) -> None:
    """Print a line of the log of a command that trains nothing, such as `tune`."""
    from ..ultralytics_hooks.log import PREFIX

    console(stderr=True).print(f"{PREFIX}{line}", markup=False, style="yellow" if warning else None)


def main() -> None:
    """Run the command line; a mistake of the user ends in one message and exit code 1; `--debug` shows all of it."""
    if os.environ.get("NO_COLOR"):
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None  # of --help and of wrong options; see `console`
    debug, words = split_debug(sys.argv[1:])
    try:
        with log_lines(_show):
            app([*words[:debug], *in_our_order(words[debug:])], prog_name="yolo-rocm")
    except Exception as error:
        if debug:
            raise
        end_in_one_line(error)
