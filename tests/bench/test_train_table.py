"""What `bench train` prints and writes of its ways: ratios, memory, losses that depart."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from yolo_rocm.bench import train_table
from yolo_rocm.bench.busy import Busy
from yolo_rocm.bench.way import Way
from yolo_rocm.cli import bench_train, options
from yolo_rocm.telemetry.classes import CLASSES

from .made_ways import made

pytestmark = pytest.mark.once


def test_ratios_are_to_the_faster_layout_and_to_its_memory(tmp_path):
    compared = [
        made("stock", False, [30.0, 10.0, 20.0], 100.0),
        made("stock", True, [16.0], 200.0),
        made("vendor off", False, [80.0], 50.0),
        made("vendor off", True, [160.0], 400.0),
        made("ours", False, [24.0], 150.0),
        made("ours", True, [8.0], 190.0),
    ]
    compared[4].losses[2] = float("nan")
    table = train_table.rows(compared, amp=False)
    assert [row.step_ms for row in table] == [20.0, 16.0, 80.0, 160.0, 24.0, 8.0]
    assert [row.to_stock for row in table] == [1.25, 1.0, 5.0, 10.0, 1.5, 0.5]
    assert [row.to_vendor_off for row in table] == [0.25, 0.2, 1.0, 2.0, 0.3, 0.1]
    assert [row.memory_to_stock for row in table] == [0.5, 1.0, 0.25, 2.0, 0.75, 0.95]
    assert [row.requested_to_stock for row in table] == [0.375, 1.0, 0.0625, 2.25, 0.6875, 0.9375]
    assert [row.reserved_to_stock for row in table] == [mb / 1400 for mb in (900, 1400, 650, 2400, 1150, 1350)]
    assert [row.wrong for row in table] == [False] * 4 + [True, False]
    assert [row.of_preset for row in table] == [False] * 5 + [True]
    compared.append(made("ours lean", True, [10.0], 95.0))
    assert train_table.summary(compared) == (
        "ours channels_last, as the preset runs it: 8.0 ms a step; 0.500x the time and 0.950x the peak memory of stock "
        "channels_last; 0.100x the time and 3.800x the peak memory of vendor off NCHW; ours lean channels_last: 1.250x "
        "the time and 0.500x the peak memory of ours channels_last"
    )
    assert train_table.summary(compared[:4]) == ""
    train_table.plot(tmp_path / "drawn.png", table, "made")
    assert (tmp_path / "drawn.png").stat().st_size > 5000


def test_times_are_compared_with_those_of_the_same_round():
    """On a host that becomes slower and slower."""
    turns = {
        ("stock", True): [[10.0, 10.0, 99.0], [20.0], [40.0]],
        ("ours", True): [[5.0, 5.0, 99.0], [20.0], [30.0]],
        ("stock + compile", False): [[10.0]],
        ("vendor off", False): [[15.0], [50.0]],
        ("ours auto + vendor", False): [[15.0]],
    }
    compared = [made(*way, [1.0], 10.0) for way in turns]
    for way, times in zip(compared, turns.values(), strict=True):
        way.turns_ms = times
    stock, ours = compared[:2]
    compared[2].compiled = True
    table = train_table.rows(compared, amp=False)
    assert stock.step_ms == ours.step_ms == 20.0
    assert table[1].to_stock == 0.75  # of 0.5, 1.0 and 0.75
    assert table[2].to_stock == 0.5  # compiled: of all steps
    # Of 1.5 and 2.5, and of 1.5: interrupted.
    assert [row.to_stock for row in table[3:]] == [pytest.approx(3.75**0.5), 1.5]


def test_the_tables_fit_a_terminal_and_tell_the_numbers_of_memory_apart(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(options, "out", Console(file=shown, width=80))
    failed, missing = made("vendor off", False, [9.0], 300.0), Way("vendor off + compile", True)
    failed.error, missing.error = "gone", "not runnable here: no Triton"
    stock, ours = made("stock", True, [16.0], 200.0), made("ours", True, [8.0], 190.0)
    stock.busy = Busy(12.0, dict(zip(CLASSES, (7.0, 2.0, 1.0, 1.5, 0.25, 0.25), strict=True)), on_gpu=True)
    table = train_table.rows([stock, ours, failed, missing], amp=False)
    bench_train._print(table, "a title")
    cells = [line.split() for line in shown.getvalue().splitlines() if line.startswith(("stock NHWC", "ours NHWC"))]
    assert cells == [
        ["stock", "NHWC", "16.0", "1.000x", "-", "3.0000", "-"],
        ["ours", "NHWC", "*", "8.0", "0.500x", "-", "3.0000", "-"],
        ["stock", "NHWC", "12.0", "4.0", "7.0", "2.0", "1.0", "1.5", "0.2", "0.2"],
        ["ours", "NHWC", "*", *["-"] * 8],
        ["stock", "NHWC", "200", "1.000x", "160", "1.000x", "1400", "1.000x"],
        ["ours", "NHWC", "*", "190", "0.950x", "150", "0.938x", "1350", "0.964x"],
    ]
    assert "…" not in shown.getvalue()
    assert max(map(len, shown.getvalue().splitlines())) <= 80
    assert "vendor off NCHW: gone\n" in shown.getvalue()
    assert "vendor off + compile channels_last: not runnable here: no Triton\n" in shown.getvalue()
    assert table[2].peak_mb is table[2].requested_mb is table[2].reserved_mb is None


@pytest.mark.parametrize(
    ("own", "ours", "wrong"),
    [(1e-2, 2.9e-2, False), (1e-2, 3.1e-2, True), (0.5, 4.9e-2, False), (0.5, 5.1e-2, True)],
)
def test_losses_may_depart_as_those_of_the_layouts_of_torch_do(own, ours, wrong):
    compared = [made("stock", last, [1.0], 10) for last in (False, True)] + [made("ours", True, [1.0], 10)]
    for way, departs in zip(compared[1:], (own, ours), strict=True):
        way.losses[1] *= 1 + departs
    assert [row.wrong for row in train_table.rows(compared, True)] == [False, own > 0.05, wrong]


def test_a_vendor_library_that_is_wrong_allows_nothing():
    compared = [made(kind, last, [1.0], 10) for kind in ("stock", "vendor off") for last in (False, True)]
    compared += [made("ours", False, [1.0], 10), made("ours", True, [1.0], 10)]
    compared[1].losses[0] = float("nan")
    compared[4].losses[0] *= 1.01
    table = train_table.rows(compared, True)
    assert [row.wrong for row in table] == [False, True, False, False, True, False]
    assert [row.wrong for row in train_table.rows(compared[:2] + compared[4:], True)] == [False, True, True, False]


def test_losses_may_depart_by_rounding_alone():
    compared = [made("stock", False, [1.0], 1.0), made("ours", False, [1.0], 1.0)]
    for departs, amp, wrong in ((9e-4, False, False), (2e-3, False, True), (2e-3, True, False), (9e-3, True, True)):
        compared[1].losses[1] = 4.0 * (1 + departs)
        assert [row.wrong for row in train_table.rows(compared, amp)] == [False, wrong]
