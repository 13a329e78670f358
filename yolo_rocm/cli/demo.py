"""`yolo-rocm demo`: the whole product on made data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import AsJson, PresetName, say


def demo(
    folder: Annotated[Path, typer.Option(help="Where data and results go.")] = Path("yolo-rocm-demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    preset: PresetName = "auto",
    as_json: AsJson = False,
) -> None:
    """Make a small data set, train a small model on whatever device there is, and say what happened."""
    from ..bench.checks import folder as checked
    from ..bench.demo import run_demo, size_here
    from ..bench.demo_data import make_data
    from ..preset.restart import restart_if_late

    restart_if_late(preset)
    checked(folder, "--folder")
    size = size_here()
    with stdout_for_json(as_json):
        with progress("making images") as show:
            data = make_data(folder / "data", images=size.images, size=size.pixels, progress=show)
        facts = run_demo(folder, data, size, epochs or size.epochs, preset, say)
    if as_json:
        print_json(facts)
