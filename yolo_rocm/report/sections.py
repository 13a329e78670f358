"""The tables of the page for one run, as the template takes them."""

from __future__ import annotations

import json
from typing import Any, Final

from ..conv.names import PASSES
from .files import mapping, number, rows_of
from .run import RunData

# A model met at hundreds of shapes (multi_scale) has thousands of rows; the slowest ones are worth reading.
MOST_LAYERS: Final = 1000
MOST_ROWS: Final = 300
_NAMES: Final = 20
_TEXT: Final = 400


def layer_rows(run: RunData, most: int = MOST_LAYERS) -> tuple[list[dict[str, Any]], int]:
    """Return the table of convolutions, the slowest first, and how many rows were left out of it: the quickest ones."""
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
    rows.sort(key=lambda row: (row["total"] is None, -(row["total"] or 0.0)))
    return rows[:most], max(0, len(rows) - most)


def preset_rows(run: RunData) -> list[tuple[str, str, str]]:
    """Return every value of the preset with its origin."""
    values = mapping(mapping(run.facts.get("settings")).get("values"))
    rows = list(values.items())[:MOST_ROWS]
    return [(text(k), text(mapping(v).get("value")), text(mapping(v).get("origin"))) for k, v in rows]


def argument_rows(run: RunData) -> list[tuple[str, str]]:
    """Return the arguments of Ultralytics."""
    return [(text(key), text(value)) for key, value in list(run.arguments.items())[:MOST_ROWS]]


def stack_rows(run: RunData) -> list[tuple[str, str]]:
    """Return hardware and software."""
    machine, stack = mapping(run.facts.get("machine")), mapping(run.facts.get("stack"))
    rows = [(f"GPU {i}", gpu_words(gpu)) for i, gpu in enumerate(rows_of(machine.get("gpus")))]
    rows += [(text(key).replace("_", " "), text(value)) for key, value in stack.items()]
    for key, value in machine.items():
        if key not in ("gpus", *stack) and value not in (None, [], ""):
            rows.append((text(key).replace("_", " "), text(value)))
    classes = mapping(run.facts.get("run")).get("classes")
    if isinstance(classes, list):
        more = f" and {len(classes) - _NAMES} more" if len(classes) > _NAMES else ""
        rows.append((f"{len(classes)} classes", text(", ".join(map(str, classes[:_NAMES]))) + more))
    return rows[:MOST_ROWS]


def gpu_words(gpu: dict[str, Any]) -> str:
    """Return a GPU of `rocm.json` in words."""
    hidden = f", hidden by {gpu['hidden_by']}" if gpu.get("hidden_by") else ""
    memory = f", {gpu['vram_gb']} GB" if gpu.get("vram_gb") else ""
    return text(f"{gpu.get('name')}{memory}{hidden}")


def finding_rows(run: RunData) -> list[dict[str, Any]] | None:
    """Return what the doctor's checks found; None where they did not look."""
    if not isinstance(run.facts.get("findings"), list):
        return None
    return [
        {
            **{key: text(row.get(key)) for key in ("id", "severity", "finding", "remedy")},
            "sources": texts(row.get("sources"), _NAMES),
        }
        for row in rows_of(run.facts["findings"])[:MOST_ROWS]
    ]


def broken_images(run: RunData) -> list[tuple[str, str]]:
    """Return files that could not be read and how often each was tried."""
    return [(text(file), text(count)) for file, count in list(mapping(run.facts.get("broken_images")).items())[:50]]


def texts(value: Any, most: int = MOST_ROWS) -> list[str]:
    """Return the first texts in a list; nothing for anything else."""
    return [text(item) for item in value if isinstance(item, str)][:most] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return any value of a file as a text of sensible length; the template escapes it."""
    if value is None:
        return "none"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value) or "none"
    elif isinstance(value, dict) and all(isinstance(item, str) for item in (*value, *value.values())):
        value = ", ".join(f"{key} {item}" for key, item in value.items()) or "none"
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return told if len(told) <= _TEXT else f"{told[:_TEXT]}..."
