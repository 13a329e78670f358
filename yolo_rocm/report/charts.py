"""The three plots of the page as data: speed, device and learning, each of a few charts with lines by epoch or time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .run import RunData

# A line thinner than this looks the same, and a page of two runs of a week stays below a megabyte.
MOST_POINTS: Final = 400
MOST_LINES: Final = 6
# Title, unit, and the label of each column of the telemetry.
_DEVICE: Final = (
    ("GPU memory", "GB", {"vram_used_mb": "in use", "torch_reserved_mb": "held by torch", "vram_total_mb": "card"}),
    ("Utilisation", "%", {"busy_percent": "GPU", "host_cpu_percent": "CPU"}),
    ("Temperature", "°C", {"temperature_c": "GPU"}),
    ("Power", "W", {"power_w": "GPU"}),
    ("Host memory", "GB", {"host_memory_mb": "in use"}),
)


@dataclass(frozen=True)
class Line:
    """One line of a chart; a gap is None. `run` is the letter of its run where there are two."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    run: str = ""


@dataclass(frozen=True)
class Chart:
    """Lines over one axis.

    Attributes:
        title: Heading.
        x_label: What the horizontal axis counts.
        lines: Its lines; each has a value.
        unit: Unit of the vertical axis.
    """

    title: str
    x_label: str
    lines: Sequence[Line]
    unit: str = ""


def speed(run: RunData) -> list[Chart]:
    """Return speed, data wait, and what workers did, by epoch."""
    x, values = run.loading.x, run.loading.values
    stages = {stage: values.get(f"{stage}_s") for stage in ("load", "augment", "collate")}
    return _charts(
        _chart("Images per second", "epoch", x, {"images/s": run.epoch_rates}),
        _chart("Waited for data", "epoch", x, {"share of the epoch": values.get("wait_share")}, "%", 100),
        _chart("Work of all workers", "epoch", x, stages, "s"),
    )


def device(run: RunData) -> list[Chart]:
    """Return memory, utilisation, temperature and power by time."""
    x, values = run.telemetry.x, run.telemetry.values
    return _charts(
        *(
            _chart(
                title,
                "minutes",
                x,
                {label: values.get(column) for column, label in columns.items()},
                unit,
                1 / 1024 if unit == "GB" else 1,  # the table has MiB
            )
            for title, unit, columns in _DEVICE
        )
    )


def learning(run: RunData) -> list[Chart]:
    """Return losses and metrics by epoch."""
    results = run.results

    def columns(prefix: str) -> dict[str, list[float | None]]:
        named = {
            name.removeprefix(prefix): values for name, values in results.values.items() if name.startswith(prefix)
        }
        return {name.removesuffix("_loss"): values for name, values in named.items()}

    return _charts(
        _chart("Training losses", "epoch", results.x, columns("train/")),
        _chart("Validation losses", "epoch", results.x, columns("val/")),
        _chart("Metrics", "epoch", results.x, columns("metrics/")),
    )


def of_runs(make: Callable[[RunData], list[Chart]], runs: Sequence[RunData]) -> list[Chart]:
    """Return the charts of one run, or those of two with the lines of both."""
    together: dict[str, Chart] = {}
    for run in runs:
        for chart in make(run):
            before = together.get(chart.title, replace(chart, lines=()))
            lines = [replace(line, run=run.mark) for line in chart.lines]
            together[chart.title] = replace(before, lines=[*before.lines, *lines])
    return list(together.values())


def _charts(*charts: Chart) -> list[Chart]:
    return [chart for chart in charts if chart.lines]


def _chart(
    title: str,
    x_label: str,
    x: Sequence[float],
    columns: Mapping[str, Sequence[float | None] | None],
    unit: str = "",
    factor: float = 1,
) -> Chart:
    """Return a chart of columns that belong to the places `x`; those without a value are left out."""
    complete = {name: y for name, y in columns.items() if y is not None and len(y) == len(x)}
    known = [(name, y) for name, y in complete.items() if any(value is not None for value in y)]
    lines = [Line(name, *_thinned(x, [None if v is None else factor * v for v in y])) for name, y in known[:MOST_LINES]]
    return Chart(title, x_label, lines, unit)


def _thinned(x: Sequence[float], y: Sequence[float | None]) -> tuple[list[float], list[float | None]]:
    """Return at most `MOST_POINTS` places and values, each the mean of neighbours."""
    size = max(1, -(-len(x) // MOST_POINTS))
    starts = range(0, len(x), size)
    return [_mean(x[start : start + size]) or 0.0 for start in starts], [_mean(y[s : s + size]) for s in starts]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
