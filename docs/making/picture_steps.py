"""The picture of the README: whole training steps as the preset `generic` runs them, time and peak memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yolo_rocm.bench.ways import COMPILE, LEAN_KIND, OURS_KIND, STOCK_KIND

from .benchmarks import any_amd, read
from .picture import WIDTH, Spot, dots, drawing, legend, text, upright

FILE: Final = "h200-train-steps.csv"
TOP, STEP, FOOT = 82, 46, 90
_COLOURS: Final = {OURS_KIND: "third", LEAN_KIND: "fourth", STOCK_KIND + COMPILE: "plain"}
_NAMES: Final = {
    OURS_KIND: "this package",
    LEAN_KIND: "with step.memory: lean",
    STOCK_KIND + COMPILE: "Ultralytics with compile=True",
}


@dataclass(frozen=True)
class _Panel:
    """One quantity: the column it is in, what it is called, and where it is drawn."""

    column: str
    title: str
    left: float
    right: float

    def place(self, value: float, low: float, high: float) -> float:
        """Return where on the picture a value is, on an axis from `low` to `high`."""
        return self.left + (value - low) / (high - low) * (self.right - self.left)


_PANELS: Final = (
    _Panel("to_stock", "time of a step", 196, 448),
    _Panel("peak_to_stock", "peak memory", 488, WIDTH - 24),
)


def steps(folder: Path) -> str:
    """Return the picture. Axes do not begin with zero, so these are points on a line and not bars."""
    rows = step_rows(folder)
    values = [1.0, *(ratio for _, ways in rows for ratios in ways.values() for ratio in ratios.values())]
    low, high = math.floor(min(values) * 10) / 10, math.ceil(max(values) * 10) / 10
    bottom = TOP + STEP * len(rows) + 6
    parts = [
        text(16, 24, "Whole training steps at 640 px, next to Ultralytics with cuDNN", "title"),
        *legend((_COLOURS[way], _NAMES[way]) for way in _NAMES),
    ]
    for panel in _PANELS:
        parts.append(text(panel.left, TOP - 14, panel.title, "small"))
        for tick in range(round(low * 10), round(high * 10) + 1):
            x = panel.place(tick / 10, low, high)
            parts.append(upright(x, TOP - 6, bottom, "peer" if tick == 10 else "grid"))
            if tick % 2 == 0:
                parts.append(text(x, bottom + 16, f"{tick / 10:.1f}x", "small", "middle"))
    for number, (name, ways) in enumerate(rows):
        y = TOP + STEP * number + 24
        parts.append(text(16, y + 4, name))
        for panel in _PANELS:
            found = ((ratios[panel.column], _COLOURS[way]) for way, ratios in ways.items())
            parts += dots(y, [Spot(panel.place(each, low, high), f"{each:.2f}", colour) for each, colour in found])
    amd = "" if any_amd(folder) else " No AMD card was measured."
    height = bottom + FOOT
    said = (
        "Left is less. This package as the preset generic runs it, without cuDNN. What is compiled is from other runs."
    )
    parts.append(text(16, height - 42, said, "small"))
    parts.append(text(16, height - 26, _stock_layouts(folder), "small"))
    parts.append(text(16, height - 10, f"{_source(folder)}.{amd}", "small"))
    return drawing(height, "Time and peak memory of whole training steps, next to Ultralytics with cuDNN", parts)


def step_rows(folder: Path) -> list[tuple[str, Mapping[str, Mapping[str, float]]]]:
    """Return (model, precision and batch; ratios to stock by way and column), what has most images first.

    A way that was measured in two layouts has the row of the faster one, which is the one that the preset keeps.
    """
    found: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for row in read(folder / FILE):
        kind = row["way"].rpartition(" ")[0]
        if kind not in _NAMES:
            continue
        ways = found.setdefault((row["model"], row["precision"], row["batch"]), {})
        ratios = {panel.column: float(row[panel.column]) for panel in _PANELS}
        if kind not in ways or ratios["to_stock"] < ways[kind]["to_stock"]:
            ways[kind] = ratios
    models = list(dict.fromkeys(model for model, _, _ in found))
    keys = sorted(found, key=lambda key: (models.index(key[0]), -int(key[2]), key[1] != "fp32"))
    return [("{} {}, {} images".format(*key), found[key]) for key in keys]


def _stock_layouts(folder: Path) -> str:
    """Say which layout of Ultralytics is the 1.0 of each row."""
    measured: dict[tuple[str, str, str], set[str]] = {}
    for row in read(folder / FILE):
        kind, _, layout = row["way"].rpartition(" ")
        if kind == STOCK_KIND:
            measured.setdefault((row["model"], row["precision"], row["batch"]), set()).add(layout)
    alone: dict[str, list[str]] = {}
    for (model, precision, _), (layout, *others) in measured.items():
        if not others:
            alone.setdefault(layout, []).append(f"{model} {precision}")
    only = "".join(f"; of {', '.join(names)} only {layout} was measured" for layout, names in alone.items())
    return f"Ultralytics in its faster layout{only}."


def _source(folder: Path) -> str:
    rows: Sequence[Mapping[str, str]] = read(folder / FILE)
    dates = sorted({row["date"] for row in rows if row["way"].rpartition(" ")[0] in _NAMES})
    return f"{rows[0]['device']}, torch {rows[0]['torch']}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"
