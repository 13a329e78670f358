"""What every benchmark leaves: a table as CSV, each row with what it was measured on, and a drawing of bars."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__


@dataclass(frozen=True)
class Panel:
    """One group of bars.

    Attributes:
        label: What the numbers are, with their unit.
        digits: After the decimal point.
        series: Numbers of all ways, by the name of the part; parts are stacked.
    """

    label: str
    digits: int
    series: Mapping[str, Sequence[float]]


def stamp(command: str, **measured_on: Any) -> dict[str, Any]:
    """Return what every row says of where its numbers come from."""
    return {**measured_on, "yolo_rocm": __version__, "date": datetime.date.today().isoformat(), "command": command}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], stamp: Mapping[str, Any]) -> None:
    """Write rows, which may have different keys, each with the stamp."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*dict.fromkeys(key for row in rows for key in row), *stamp])
        writer.writeheader()
        writer.writerows({**row, **stamp} for row in rows)


def draw(path: Path, title: str, ways: Sequence[str], panels: Sequence[Panel]) -> None:
    """Draw one bar for each way in every panel; those of ours have a colour of their own."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (max(7.0, 4.0 * len(panels)), 1.2 + 0.45 * len(ways))
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", sharey=True, squeeze=False)
    colours = ["C0" if way.startswith(("stock", "vendor off")) else "C1" for way in ways]
    for axis, panel in zip(axes[0], panels, strict=True):
        ends = [0.0] * len(ways)
        for part, values in panel.series.items():
            style: dict[str, Any] = {"label": part} if len(panel.series) > 1 else {"color": colours}
            axis.barh(ways, values, left=ends, **style)
            ends = [end + value for end, value in zip(ends, values, strict=True)]
        for way, end in zip(ways, ends, strict=True):
            if end:
                axis.annotate(f" {end:.{panel.digits}f}", (end, way), va="center")
        axis.set(xlabel=panel.label, xlim=(0, 1.25 * max(ends, default=0.0) or 1.0))
        if len(panel.series) > 1:
            axis.legend(frameon=False)
    if ways:
        axes[0][0].invert_yaxis()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
