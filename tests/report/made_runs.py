"""Run folders made in a moment, of any size, as a training would have written them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from yolo_rocm.telemetry.table import TELEMETRY_FILE
from yolo_rocm.telemetry.wait_meter import EPOCH_COLUMNS, EPOCHS_FILE

EVIL = "<script>window.harmed=1</script>"
STEP = 0.1
TELEMETRY_COLUMNS = (
    "time", "busy_percent", "vram_used_mb", "vram_total_mb", "temperature_c", "power_w", "torch_reserved_mb",
    "host_cpu_percent", "host_memory_mb", "source",
)  # fmt: skip
RESULTS_COLUMNS = (
    "epoch", "time", "train/box_loss", "train/cls_loss", "metrics/mAP50(B)", "metrics/mAP50-95(B)", "val/box_loss"
)  # fmt: skip


def make_run(
    folder: Path,
    *,
    epochs: int = 3,
    batches: int = 6,
    wait: float = 0.001,
    busy: float | None = 97.0,
    vram_mb: float = 4000.0,
    setup: float = 0.0,
    layers: int = 8,
    asked: int | None = None,
    engine: str = "gemm",
) -> Path:
    """Write the folder of a run on a GPU.

    Args:
        folder: Where.
        epochs: Epochs that ran.
        batches: Batches of training in each.
        wait: Seconds each batch was waited for.
        busy: Percent the GPU was busy; None writes no telemetry.
        setup: Seconds in which the first step of the first epoch compiled and measured; the GPU was idle meanwhile.
        vram_mb: Memory in use, of 6128 MB.
        layers: Convolution layers.
        asked: Epochs the run was to have.
        engine: What served the convolutions.
    """
    folder.mkdir(parents=True)
    loading, telemetry, results = [], [], []
    now, number = 1000.0, 0
    for epoch in range(1, epochs + 1):
        began = now
        for batch in range(batches):
            waited = 2.0 if epoch == 1 and batch == 0 else wait
            now, number = now + waited + STEP + (setup if number == 0 else 0), number + 1
        first = 2.0 if epoch == 1 else wait
        seconds = now - began
        until = first + STEP + setup if setup and epoch == 1 else 0.0
        share = wait * (batches - 1) / (seconds - max(first, until))
        counted = batches - bool(until)
        loading.append(
            (epoch, counted, 16 * counted, seconds, first, wait * (batches - 1), share, "GPU-bound", 1.0, 2.0, 0.1, 0,
             began, until)
        )  # fmt: skip
        results.append((epoch, now - 1000, 3 / epoch, 2 / epoch, 0.5 - 0.5 / epoch, 0.4 - 0.4 / epoch, 4 / epoch))
        if busy is not None:
            host = (3500, 45, 9000, "sysfs")
            telemetry += [(began + second, 0, vram_mb, 6128, 60, 40, *host) for second in range(int(until))]
            begun = max(first, until)
            looks = max(1, int(seconds - until))
            for second in range(looks):
                when = began + begun + (seconds - begun) * (second + 0.5) / looks
                share = "" if second % 97 == 50 else busy - second % 3
                telemetry.append((when, share, vram_mb, 6128, 60 + second % 9, 110, *host))
    _table(folder / EPOCHS_FILE, EPOCH_COLUMNS, loading)
    if telemetry:
        _table(folder / TELEMETRY_FILE, TELEMETRY_COLUMNS, telemetry)
    _table(folder / "results.csv", RESULTS_COLUMNS, results)
    (folder / "args.yaml").write_text(
        f"task: detect\nmodel: yolov8n.yaml\ndata: 'a/{EVIL}.yaml'\nepochs: {asked or epochs}\n"
    )
    (folder / "rocm.json").write_text(json.dumps(_facts(layers, engine)))
    return folder


def change_facts(folder, **facts):
    path = folder / "rocm.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def change_column(path, column, values):
    """Give the rows of a table other values in a column, which is added at the end where it is not there."""
    head, *rows = path.read_text().splitlines()
    columns = head.split(",")
    cells = [row.split(",") for row in rows]
    if column not in columns:
        columns.append(column)
        cells = [[*row, ""] for row in cells]
    place = columns.index(column)
    for row, value in zip(cells, values, strict=False):
        row[place] = str(value)
    path.write_text("\n".join(",".join(row) for row in [columns, *cells]) + "\n")


def _facts(layers: int, engine: str) -> dict:
    rows = [
        {
            "layer": f"model.{i}.conv",
            "problem": f"conv {'3x3' if i % 2 else '1x1'} 16->{16 + i} on 16x16x64x64 float32 cuda",
            "engine": engine,
            "reason": "measured",
            **{"forward": "columns" if i % 2 else "pointwise", "grad_input": "columns", "grad_weight": "shifted"},
            "times_ms": {"forward": 0.1 * (i + 1), "grad_input": 0.2, "grad_weight": 0.3 * (i % 5)},
            "workspace_bytes": {"forward": 1048576 * i, "grad_input": 0},
        }
        for i in range(layers)
    ]
    return {
        "stack": {"torch": "2.10.0", "ultralytics": "8.4.190"},
        "machine": {"system": "linux", "gpus": [{"name": f"RX {EVIL}", "vram_gb": 6.0}], "cores": 8, "torch": "2.10.0"},
        "settings": {
            "preset": "rx5600xt",
            "why": "preset rx5600xt, as asked",
            "values": {
                "conv.engine": {"value": engine, "origin": "configs/family/rdna1.yaml"},
                "loader.workers": {"value": 4, "origin": "argument"},
            },
            "notes": [EVIL],
        },
        "convolutions": {"engines": {engine: layers}, "layers": rows, "problems": []},
        "step": {"step_ms": 100.0, "classes_ms": {"convolution": 60.0, "other": 40.0}},
        "loading": {"compute": "GPU", "advice": "workers=8, cache=disk"},
        "run": {"classes": ["cat", EVIL, '"><img src=x onerror="window.harmed=1">']},
        "broken_images": {f"images/{EVIL}.jpg": 2},
        "findings": [
            {"id": "no-kernels", "severity": "warning", "finding": EVIL, "remedy": "do this", "sources": ["x#1"]}
        ],
    }


def _table(path: Path, columns: tuple[str, ...], rows: list[tuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([[f"{cell:.4f}" if isinstance(cell, float) else cell for cell in row] for row in rows])
