"""Files of `bench train`, as it writes them, on the page of benchmarks."""

from __future__ import annotations

import pytest

from yolo_rocm.bench.busy import Busy
from yolo_rocm.bench.results import write_csv
from yolo_rocm.bench.train_table import rows, stamped
from yolo_rocm.bench.ways import INTERRUPTED
from yolo_rocm.telemetry.classes import CLASSES

from ..bench.made_ways import made

pytestmark = pytest.mark.once
NAME = "train-yolo-v9-amp-b64-640.csv"


@pytest.fixture
def folder(tmp_path):
    """A folder with one file, of a way that has run, one of ours with wrong losses, and one that was not reached."""
    stock, ours = made("stock", True, [60.0, 62.0, 64.0], 8000.0), made("ours", True, [40.0], 5000.0)
    missing = made("ours + compile", False, [], 0.0)
    stock.busy = Busy(29.25, {kind: float(number) for number, kind in enumerate(CLASSES)}, on_gpu=True)
    ours.losses, ours.overflows, missing.error = [9.0] * 4, 2, INTERRUPTED
    table = stamped(rows([stock, ours, missing], amp=True), "cpu", "yolo-rocm bench train yolo-v9.yaml amp=true")
    write_csv(tmp_path / NAME, table, {})
    return tmp_path


def test_a_file_is_shown_as_the_command_prints_it(generate, folder):
    from making.benchmarks import tables

    text = tables(folder)
    assert "## Training steps: yolo-v9, AMP, batch 64, 640 px\n" in text
    assert f"command: `yolo-rocm bench train yolo-v9.yaml amp=true`; file: [{NAME}](benchmarks/{NAME})." in text
    by_class = " | ".join(f"{number}.0" for number in range(len(CLASSES)))
    assert f"| stock channels_last | 62.0 | 60.0 | 64.0 | 1.000 | 29.2 | 32.8 | {by_class} |" in text
    assert "| ours channels_last \\* (wrong) | 40.0 | 40.0 | 40.0 | 0.645 | - | - |" in text
    assert "| stock channels_last | 8000 | 1.000 | 7960 | 1.000 | 40400 | 1.000 |" in text
    assert f"- ours + compile NCHW: {INTERRUPTED}\n" in f"{text}\n"
    assert "- ours channels_last: 2 steps overflowed" in text
    assert "- stock" not in text
