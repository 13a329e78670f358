"""The page itself: one file with its style, script and drawings inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .._version import __version__
from ..conv.names import PASSES
from ..errors import ConfigError
from ..utils.atomic import write_file
from . import charts, head, sections
from .compare import INCONCLUSIVE, differences
from .drawing import HEIGHT, WIDTH, drawing
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
    runs = [read_run(folder)] if other is None else [read_run(folder, "A"), read_run(other, "B")]
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
    script = _asset("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            runs=runs,
            plots={make.__name__: [drawing(chart) for chart in charts.of_runs(make, runs)] for make in _PLOTS},
            on_gpu=any(run.compute == "GPU" for run in runs),
            differences=differences(*runs) if len(runs) == 2 else None,
            inconclusive=INCONCLUSIVE,
            most_layers=sections.MOST_LAYERS // len(runs),
            size=(WIDTH, HEIGHT),
            passes=PASSES,
            style=_asset("page.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            version=__version__,
            made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        )
    )


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
    environment.filters.update(
        milliseconds=milliseconds, column_ms=milliseconds_alone, bars=_bars, step_words=head.step_words
    )
    environment.globals.update(head=head, sections=sections)
    return environment
