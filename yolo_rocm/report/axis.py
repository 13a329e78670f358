"""Round numbers along an axis."""

from __future__ import annotations

import math


def nice_step(span: float, count: int = 4) -> float:
    """Return 1, 2 or 5 times a power of ten, so that about `count` of them make the span."""
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5) if factor * power >= raw * 0.999), 10 * power)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers within limits."""
    step = nice_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(int((high - first * step) / step + 1e-9) + 1)]


def tick(value: float) -> str:
    """Write a number short."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"
