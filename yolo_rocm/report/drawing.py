"""Charts as numbers for the inline SVG of the template: no script draws them, and they print."""

from __future__ import annotations

import math
from typing import Any, Final

from .charts import Chart

WIDTH: Final = 380
HEIGHT: Final = 200
_LEFT: Final = 54
_RIGHT: Final = WIDTH - 14
_TOP: Final = 10
_BOTTOM: Final = HEIGHT - 36


def drawing(chart: Chart) -> dict[str, Any]:
    """Return what the template draws: paths with their colours and names, ticks and places."""
    values = [value for line in chart.lines for value in line.y if value is not None]
    low, high = (0.0, 100.0) if chart.unit == "%" else _limits(min(values), max(values))
    places = [x for line in chart.lines for x in line.x]
    first, last = min(places), max(places)
    if first == last:
        first, last = first - 0.5, last + 0.5

    def across(x: float) -> float:
        return round(_LEFT + (x - first) / (last - first) * (_RIGHT - _LEFT), 1)

    def down(y: float) -> float:
        return round(_TOP + (high - y) / (high - low) * (_BOTTOM - _TOP), 1)

    colours = {name: number for number, name in enumerate(dict.fromkeys(line.name for line in chart.lines))}
    return {
        "chart": chart,
        "left": _LEFT,
        "right": _RIGHT,
        "bottom": _BOTTOM,
        "lines": [
            {
                "name": f"{line.run} {line.name}".strip(),
                "style": f"line-{colours[line.name]}{' second' if line.run == 'B' else ''}",
                "path": _path(
                    [(across(x), None if y is None else down(y)) for x, y in zip(line.x, line.y, strict=True)]
                ),
            }
            for line in chart.lines
        ],
        "y_ticks": [(down(value), _short(value)) for value in _ticks(low, high)],
        "x_ticks": [
            (across(value), _short(value))
            for value in _ticks(first, last)
            if chart.x_label != "epoch" or value == round(value)  # there is no half epoch
        ],
    }


def _limits(low: float, high: float) -> tuple[float, float]:
    """Return the limits of an axis: from 0 where that costs little, and never without a height."""
    if math.isclose(low, high, abs_tol=1e-12):  # also where they differ by rounding alone
        return (0.0, high) if high > 0 else (low - 0.5, high + 0.5)
    return (0.0 if 0 <= low < 0.6 * high else low), high


def _ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers within limits: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= raw * 0.999), 10 * power)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"


def _path(points: list[tuple[float, float | None]]) -> str:
    parts: list[str] = []
    pen_down = False
    for x, y in points:
        if y is not None:  # a point between two gaps shows as a dot
            parts.append(f"L{x} {y}" if pen_down else f"M{x} {y}h0")
        pen_down = y is not None
    return "".join(parts)
