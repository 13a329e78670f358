"""The page itself: one file with its style, script and drawings inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._version import __version__
from ..conv.names import PASSES
from ..errors import ConfigError
from ..utils.atomic import write_file
from . import charts, head, sections
from .compare import INCONCLUSIVE, differences
from .drawing import HEIGHT, WIDTH, drawing
from .files import mapping
from .run import RunData
from .run_data import read_run
from .words import milliseconds, milliseconds_alone

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE_FILE: Final = "report.html"
COMPARISON_FILE: Final = "report_compared.html"
_PLOTS: Final = (charts.speed, charts.device, charts.learning)


def write_page(folder: Path, other: Path | None = None, out: Path | None = None) -> tuple[Path, list[RunData]]:
    """Make the page of a run, or of two side by side.

    Args:
        folder: The folder of a run.
        other: The folder of another one to compare it with.
        out: Where to write; by default next to the results of the first run.

    Returns:
        The file written, and the runs in it.

    Raises:
        ConfigError: One of the folders is not that of a training, or the page cannot be written.
    """
    folders = [each for each in (folder, other) if each is not None]
    runs = [read_run(each) for each in folders]
    path = out or Path(folder) / (PAGE_FILE if other is None else COMPARISON_FILE)
    page = render(runs).encode(errors="replace")  # a file name may hold bytes that are no text
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, page)
    except OSError as error:
        raise ConfigError(
            f"cannot write the page to '{path}': {error.strerror or error}. Give a file in a folder you may write to."
        ) from error
    return path, runs


def render(runs: Sequence[RunData]) -> str:
    """Return the page of one or two runs."""
    labels = "AB" if len(runs) > 1 else ("",)
    views = [_view(run, label, sections.MOST_LAYERS // len(runs)) for run, label in zip(runs, labels, strict=False)]
    script = _asset("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            runs=views,
            plots={make.__name__: [drawing(chart) for chart in charts.of_runs(make, runs)] for make in _PLOTS},
            on_gpu=any(run.compute == "GPU" for run in runs),
            differences=differences(*runs) if len(runs) == 2 else None,
            inconclusive=INCONCLUSIVE,
            size=(WIDTH, HEIGHT),
            passes=PASSES,
            style=_asset("page.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            version=__version__,
            made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        )
    )


def _view(run: RunData, label: str, most_layers: int) -> dict[str, Any]:
    layers, left_out = sections.layer_rows(run, most_layers)
    unit, by_algorithm = run.by_algorithm
    settings = mapping(run.facts.get("settings"))
    return {
        "label": label,
        "name": run.name,
        "given": str(run.folder),
        "folder": str(run.folder.absolute()),
        "head": head.head_rows(run),
        "verdict": run.verdict,
        "tiles": head.tiles(run),
        "remarks": run.remarks,
        "layers": layers,
        "layers_left_out": left_out,
        "timed": any(row["total"] is not None for row in layers),
        "untimed": sum(row["total"] is None for row in layers),
        "classes": _bars(run.classes_ms),
        "step_words": head.step_words(run),
        "rest_of_step": head.rest_of_step(run),
        "spaced": any(row["workspace"] is not None for row in layers),
        "algorithms": _bars(by_algorithm),
        "algorithm_unit": unit,
        "why": sections.text(settings.get("why") or ""),
        "notes": sections.texts(settings.get("notes")),
        "preset": sections.preset_rows(run),
        "arguments": sections.argument_rows(run),
        "stack": sections.stack_rows(run),
        "findings": sections.finding_rows(run),
        "broken": sections.broken_images(run),
    }


def _bars(values: dict[str, float]) -> list[tuple[str, float, float]]:
    total = sum(values.values())
    bars = list(values.items())[: sections.MOST_ROWS]
    return [(sections.text(name), value, value / total) for name, value in bars] if total else []


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined

    environment = Environment(
        loader=DictLoader({"page.html": _asset("page.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(milliseconds=milliseconds, column_ms=milliseconds_alone)
    return environment
