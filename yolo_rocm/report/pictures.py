"""The plots of speed and device as PNG files, for those who look at their runs in W&B, ClearML or TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import charts
from .charts import Chart
from .run import RunData

SPEED_PICTURE: Final = "rocm_speed.png"
DEVICE_PICTURE: Final = "rocm_device.png"
_COLUMNS: Final = 3


def write_pictures(run: RunData, folder: Path) -> list[Path]:
    """Draw the plots of a run that have something to show; return the files written.

    Args:
        run: The run.
        folder: Where the files go.
    """
    plots = {SPEED_PICTURE: charts.speed(run), DEVICE_PICTURE: charts.device(run)}
    for name, plot in plots.items():
        if plot:
            _figure(plot, run.verdict.sentence).savefig(folder / name, dpi=110)
    return [folder / name for name, plot in plots.items() if plot]


def _figure(plot: Sequence[Chart], title: str) -> Any:
    # A figure of its own, not pyplot's: nothing of the user's open figures or backend is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    columns = min(_COLUMNS, len(plot))
    rows = -(-len(plot) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.6 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    for place, chart in enumerate(plot, 1):
        axes = figure.add_subplot(rows, columns, place)
        for line in chart.lines:
            y = [float("nan") if value is None else value for value in line.y]
            axes.plot(line.x, y, marker="o" if len(line.x) < 2 else None, linewidth=1.4, label=line.name)
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
    figure.suptitle(title.replace("$", r"\$"), fontsize=9, wrap=True)  # no mathematics
    return figure
