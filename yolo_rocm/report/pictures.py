"""The main plots as PNG files, for those who look at their runs in W&B, ClearML, MLflow, Comet or TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import charts
from .charts import Chart
from .run import RunData

SPEED_PICTURE: Final = "rocm_speed.png"
DEVICE_PICTURE: Final = "rocm_device.png"
ENGINES_PICTURE: Final = "rocm_convolutions.png"
_COLOURS: Final = ("#0a63c9", "#a84600", "#14804a", "#8a3fc7", "#b0246b", "#5b6470")
_COLUMNS: Final = 3


def write_pictures(run: RunData, folder: Path) -> list[Path]:
    """Draw the plots of a run that have something to show; return the files written.

    Args:
        run: The run.
        folder: Where the files go.
    """
    figures = {}
    for name, drawn, title in (
        (SPEED_PICTURE, charts.speed(run), run.verdict.sentence),
        (DEVICE_PICTURE, charts.device(run), ""),
    ):
        if drawn:
            figures[name] = _figure_of(drawn, title)
    if run.by_algorithm[1]:
        figures[ENGINES_PICTURE] = _bars(run)
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=110)
    return [folder / name for name in figures]


def _figure(width: float, height: float) -> Any:
    # A figure of its own, not pyplot's: nothing of the user's open figures or backend is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _figure_of(drawn: Sequence[Chart], title: str = "") -> Any:
    from matplotlib.ticker import MaxNLocator

    columns = min(_COLUMNS, len(drawn))
    rows = -(-len(drawn) // columns)
    figure = _figure(4.2 * columns, 2.6 * rows + 0.4)
    for place, chart in enumerate(drawn, 1):
        axes = figure.add_subplot(rows, columns, place)
        colours = dict(zip(dict.fromkeys(line.name for line in chart.lines), _COLOURS, strict=False))
        for line in chart.lines:
            y = [float("nan") if value is None else value for value in line.y]
            axes.plot(
                line.x,
                y,
                color=colours.get(line.name, _COLOURS[-1]),
                linestyle="--" if line.run == "B" else "-",
                marker="o" if len(line.x) < 2 else None,
                linewidth=1.4,
                label=_literal(f"{line.run} {line.name}".strip()),
            )
        axes.set_title(f"{chart.title} ({chart.unit})" if chart.unit else chart.title, fontsize=10)
        axes.set_xlabel(chart.x_label, fontsize=8)
        if chart.unit == "%":
            axes.set_ylim(0, 100)
        if chart.x_label == "epoch":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
        if len(chart.lines) > 1:
            axes.legend(fontsize=7, framealpha=0.6)
    if title:
        figure.suptitle(_literal(title), fontsize=9, wrap=True)
    return figure


def _bars(run: RunData) -> Any:
    unit, values = run.by_algorithm
    total = sum(values.values())
    figure = _figure(6.4, 1.2 + 0.32 * len(values))
    axes = figure.add_subplot()
    bars = axes.barh([_literal(name) for name in values], list(values.values()), color=_COLOURS[0])
    axes.bar_label(bars, [f"{value / total:.0%}" for value in values.values()], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(values.values()))
    timed = unit == "ms"
    axes.set_title(f"Convolutions: {'time of a step' if timed else 'passes'} by algorithm", fontsize=10)
    axes.set_xlabel("ms" if timed else "passes of layers (not timed)", fontsize=8)
    axes.tick_params(labelsize=8)
    return figure


def _literal(text: str) -> str:
    """Keep matplotlib from reading mathematics into a text."""
    return text.replace("$", r"\$")
