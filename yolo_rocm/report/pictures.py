"""The main plots as PNG files, for those who look at their runs in W&B, ClearML, MLflow, Comet or TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from . import sections
from .charts import Chart, readable
from .run import Run

SPEED_PICTURE: Final = "rocm_speed.png"
DEVICE_PICTURE: Final = "rocm_device.png"
ENGINES_PICTURE: Final = "rocm_convolutions.png"
_COLOURS: Final = ("#0a63c9", "#a84600", "#14804a", "#8a3fc7", "#b0246b", "#5b6470")

_DASHES: Final = ("-", "--", ":", "-.", (0, (5, 1)), (0, (8, 2, 2, 2)))


def draw_pictures(run: Run, folder: Path) -> list[Path]:
    """Draw the plots of a run that have something to show.

    Args:
        run: The run.
        folder: Where the files go.

    Returns:
        The files written.
    """
    speed = [chart for chart in sections.speed_charts(run)[:2] if chart.shown]
    device = [readable(chart) for chart in sections.device_charts(run) if chart.shown]
    made = []
    for name, charts in ((SPEED_PICTURE, speed), (DEVICE_PICTURE, device)):
        if charts:
            made.append(_save(_lines(charts, run.verdict.sentence if name == SPEED_PICTURE else ""), folder / name))
    if run.by_algorithm[1]:
        made.append(_save(_bars(run), folder / ENGINES_PICTURE))
    return made


def _figure(width: float, height: float) -> Any:
    # A figure of its own, not pyplot's: nothing of the user's open figures or backend is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _lines(charts: list[Chart], title: str) -> Any:
    from matplotlib.ticker import MaxNLocator

    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    figure = _figure(5 * columns, 2.6 * rows + 0.4)
    for index, chart in enumerate(charts):
        axes = figure.add_subplot(rows, columns, index + 1)
        for line, colour, dashes in zip(chart.shown, _COLOURS, _DASHES, strict=False):
            y = [float("nan") if value is None else value for value in line.y]
            marker = "o" if len(line.x) < 2 else None
            axes.plot(line.x, y, color=colour, label=line.name, linewidth=1.4, linestyle=dashes, marker=marker)
            if line.thinned:
                low, high = ([float("nan") if v is None else v for v in band] for band in (line.low, line.high))
                axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_title(f"{chart.title} ({chart.unit})" if chart.unit else chart.title, fontsize=10)
        axes.set_xlabel(chart.x_label, fontsize=8)
        axes.set_ylim(*chart.limits())
        if chart.x_label == "epoch":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
        if len(chart.lines) > 1:
            axes.legend(fontsize=8, frameon=False)
    if title:
        figure.suptitle(_plain(title), fontsize=9, wrap=True)
    return figure


def _bars(run: Run) -> Any:
    unit, values = run.by_algorithm
    total = sum(values.values())
    figure = _figure(6.4, 1.2 + 0.32 * len(values))
    axes = figure.add_subplot()
    bars = axes.barh([_plain(name) for name in values], list(values.values()), color=_COLOURS[0])
    words = [f"{value / total:.0%}" for value in values.values()]
    axes.bar_label(bars, words, padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(values.values()))
    timed = unit == "ms"
    axes.set_title(
        "Convolutions: time of a step by algorithm" if timed else "Convolutions: passes by algorithm", fontsize=10
    )
    axes.set_xlabel("ms" if timed else "passes of layers (not timed)", fontsize=8)
    axes.tick_params(labelsize=8)
    return figure


def _plain(text: str) -> str:
    """Keep matplotlib from reading mathematics into a text."""
    return text.replace("$", r"\$")


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    return path
