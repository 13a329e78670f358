"""The parts of the page for one run: numbers, charts and tables, as the template takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from .charts import Chart
from .files import mapping, number, rows_of
from .run_data import PASSES, Run
from .series import Series, thin

# A model met at hundreds of shapes (multi_scale) has thousands of rows; the slowest ones are worth reading.
MOST_LAYERS: Final = 1000
MOST_ROWS: Final = 300
_NAMES: Final = 20
_TEXT: Final = 400


@dataclass(frozen=True)
class Tile:
    """One number of the head of the page. `better` says which direction is: 1 up, -1 down, 0 neither."""

    label: str
    value: float | None
    shown: str
    better: int = 0


def tiles(run: Run) -> list[Tile]:
    """Return the numbers that sum a run up; those that nobody measured are left out."""
    peak = max(run.telemetry.known("vram_used_mb"), default=None)
    asked = number(run.arguments.get("epochs"))
    metric = next((name for name in run.results.values if name.startswith("metrics/mAP50-95")), None) or next(
        (name for name in run.results.values if name.startswith("metrics/")), None
    )
    known = [
        _tile("images/s", run.images_per_s, "{:.1f}", 1),
        _tile("waited for data", run.wait_share, "{:.1%}", -1),
        _tile("seconds an epoch", run.epoch_s, "{:.1f}", -1),
        _tile("epochs", float(len(run.results.x)) or None, "{:.0f}" + (f" of {asked:.0f}" if asked else "")),
        _tile(f"best {metric.removeprefix('metrics/')}" if metric else "", run.best(metric or ""), "{:.3f}", 1),
        _tile("GPU busy", run.busy, "{:.0%}", 1),
        _tile("peak GPU memory", peak, "{:.0f} MB", -1),
        _tile("GPU memory in use", run.memory_share, "{:.0%}"),
        _tile("hottest", max(run.telemetry.known("temperature_c"), default=None), "{:.0f} °C", -1),
        _tile("mean power", _mean(run.telemetry.known("power_w")), "{:.0f} W", -1),
        _tile("sampled step", run.step_ms, "{:.1f} ms", -1),
    ]
    return [tile for tile in known if tile.value is not None]


def _tile(label: str, value: float | None, form: str, better: int = 0) -> Tile:
    return Tile(label, value, "" if value is None else form.format(value), better)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def speed_charts(run: Run) -> list[Chart]:
    """Return data wait and speed by epoch."""
    loading = run.loading
    rates = _each(loading.values, ("images", "seconds"), lambda images, seconds: images / seconds if seconds else None)
    shares = [None if v is None else 100 * v for v in loading.values.get("wait_share", ())]
    stages = [_line(loading.x, loading.values.get(f"{name}_s"), name, "s") for name in ("load", "augment", "collate")]
    return [
        Chart("Waited for data", [_line(loading.x, shares, "share of the epoch", "%")], "epoch"),
        Chart("Images per second", [_line(loading.x, rates, "images/s")], "epoch"),
        Chart("Seconds of all workers together, by stage", stages, "epoch"),
    ]


def device_charts(run: Run) -> list[Chart]:
    """Return memory, utilisation, temperature and power by time."""
    told = run.telemetry

    def line(column: str, name: str, unit: str) -> Series:
        return _line(told.x, told.values.get(column), name, unit)

    return [
        Chart(
            "GPU memory",
            [
                line("vram_used_mb", "in use", "MB"),
                line("torch_reserved_mb", "reserved by torch", "MB"),
                line("vram_total_mb", "of the card", "MB"),
            ],
            "minutes",
        ),
        Chart(
            "Utilisation",
            [line("busy_percent", "GPU", "%"), line("host_cpu_percent", "host CPU", "%")],
            "minutes",
            percent=max(told.known("host_cpu_percent"), default=0.0) <= 100,
        ),
        Chart("Temperature", [line("temperature_c", "GPU", "°C")], "minutes"),
        Chart("Power", [line("power_w", "GPU", "W")], "minutes"),
        Chart("Host memory", [line("host_memory_mb", "in use", "MB")], "minutes"),
    ]


def learning_charts(run: Run) -> list[Chart]:
    """Return losses and metrics by epoch."""
    results = run.results

    def lines(prefix: str) -> list[Series]:
        names = [name for name in results.values if name.startswith(prefix)]
        return [_line(results.x, results.values[name], name.removeprefix(prefix)) for name in names]

    return [
        Chart("Training losses", lines("train/"), "epoch"),
        Chart("Validation losses", lines("val/"), "epoch"),
        Chart("Metrics", lines("metrics/"), "epoch"),
        Chart("Learning rate", lines("lr/"), "epoch"),
    ]


def _line(x: list[float], y: Iterable[float | None] | None, name: str, unit: str = "") -> Series:
    values = list(y) if y is not None else []
    return thin(name, x if len(values) == len(x) else [], values if len(values) == len(x) else [], unit)


def _each(values: dict[str, list[float | None]], names: tuple[str, ...], make: Callable[..., Any]) -> list[Any]:
    columns = [values.get(name, []) for name in names]
    return [None if None in row else make(*row) for row in zip(*columns, strict=False)]


def layer_rows(run: Run, most: int = MOST_LAYERS) -> tuple[list[dict[str, Any]], int]:
    """Return the table of convolutions, and how many rows were left out of it: the quickest ones."""
    rows = []
    for row in run.layers:
        total, space = row["total_ms"], mapping(row.get("workspace_bytes"))
        known = [value for value in map(number, space.values()) if value is not None]
        rows.append(
            {
                "layer": text(row.get("layer")),
                "problem": text(row.get("problem") or row.get("reason")),
                "engine": text(row.get("engine") or "not reached"),
                "passes": [(text(row.get(which) or ""), row["times_ms"][which]) for which in PASSES],
                "total": total,
                "share": total / run.step_ms if total is not None and run.step_ms else None,
                "workspace": max(known) if known else None,
                "reason": text(row.get("reason") or ""),
            }
        )
    if len(rows) > most:
        kept = sorted(range(len(rows)), key=lambda i: -(rows[i]["total"] or 0.0))[:most]
        return [rows[i] for i in sorted(kept)], len(rows) - most
    return rows, 0


def preset_rows(run: Run) -> list[tuple[str, str, str]]:
    """Return every value of the preset with its origin."""
    values = mapping(mapping(run.facts.get("settings")).get("values"))
    return [(text(k), text(mapping(v).get("value")), text(mapping(v).get("origin"))) for k, v in values.items()]


def argument_rows(run: Run) -> list[tuple[str, str]]:
    """Return the arguments of Ultralytics."""
    return [(text(key), text(value)) for key, value in list(run.arguments.items())[:MOST_ROWS]]


def stack_rows(run: Run) -> list[tuple[str, str]]:
    """Return hardware and software."""
    machine, stack = mapping(run.facts.get("machine")), mapping(run.facts.get("stack"))
    rows = [(f"GPU {i}", _gpu(gpu)) for i, gpu in enumerate(rows_of(machine.get("gpus")))]
    rows += [(text(key), text(value)) for key, value in stack.items()]
    for key, value in machine.items():
        if key not in ("gpus", *stack) and value not in (None, [], ""):
            rows.append((text(key), text(value)))
    classes = mapping(run.facts.get("run")).get("classes")
    if isinstance(classes, list):
        more = f" and {len(classes) - _NAMES} more" if len(classes) > _NAMES else ""
        rows.append((f"{len(classes)} classes", text(", ".join(map(str, classes[:_NAMES]))) + more))
    return rows


def _gpu(gpu: dict[str, Any]) -> str:
    hidden = f", hidden by {gpu['hidden_by']}" if gpu.get("hidden_by") else ""
    memory = f", {gpu['vram_gb']} GB" if gpu.get("vram_gb") else ""
    return text(f"{gpu.get('name')}{memory}{hidden}")


def finding_rows(run: Run) -> list[dict[str, Any]] | None:
    """Return what the doctor's checks found; None where they did not look."""
    if not isinstance(run.facts.get("findings"), list):
        return None
    return [
        {
            "id": text(row.get("id")),
            "severity": text(row.get("severity")),
            "finding": text(row.get("finding")),
            "remedy": text(row.get("remedy")),
            "sources": [text(s) for s in row.get("sources") or () if isinstance(s, str)],
        }
        for row in rows_of(run.facts["findings"])
    ]


def broken_images(run: Run) -> list[tuple[str, str]]:
    """Return files that could not be read and how often they were asked for."""
    return [(text(name), text(count)) for name, count in list(mapping(run.facts.get("broken_images")).items())[:50]]


def text(value: Any) -> str:
    """Return any value of a file as a text of sensible length; the template escapes it."""
    if value is None:
        return "none"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value) or "none"
    try:
        told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):  # YAML can hold itself
        return f"a {type(value).__name__} that cannot be shown"
    return told if len(told) <= _TEXT else f"{told[:_TEXT]}..."
