"""Two runs: what differs, by how much, and whether that means something."""

from __future__ import annotations

import pytest

from yolo_rocm.report.compare import INCONCLUSIVE, apart, differences
from yolo_rocm.report.page import render
from yolo_rocm.report.run_data import read_run

from ..tables import each_row
from .made_runs import change_column, make_run

pytestmark = pytest.mark.once


@each_row(
    ("first", "second", "expected"),
    [
        ([1.0, 1.2, 1.1], [1.5, 1.9, 1.7], True),
        ([1.0, 1.2, 1.5], [1.5, 1.9, 1.7], False),  # they touch
        ([1.0, 1.2, 1.1, 60.0], [1.5, 1.9, 1.7], False),  # an epoch that something held up leaves it open
        ([1.0, 1.0], [2.0, 2.0, 2.0], False),
    ],
)
def test_epochs_differ_where_their_ranges_do_not_overlap(first, second, expected):
    assert apart(first, second) is apart(second, first) is expected


def test_three_noisy_epochs_are_inconclusive_and_the_spread_is_shown(tmp_path):
    def outcome(first, second):
        runs = []
        for folder, seconds in (("a", first), ("b", second)):
            path = make_run(tmp_path / f"{folder}{len(list(tmp_path.iterdir()))}", epochs=len(seconds))
            change_column(path / "rocm_loader.csv", "seconds", seconds)
            runs.append(read_run(path))
        return {row.what: row for row in dict(differences(*runs))["Outcome"]}, render(runs)

    told, page = outcome((9, 2.0, 2.6, 3.2), (9, 2.6, 3.3, 4.1))
    row = told["training of an epoch"]
    assert (row.first, row.second) == ("2.6 s (2.0 s to 3.2 s)", "3.3 s (2.6 s to 4.1 s)")
    assert (row.change, row.better) == (f"{INCONCLUSIVE} (+26.9%)", 0)
    assert told["images/s"].change.startswith(INCONCLUSIVE)
    assert f"{INCONCLUSIVE} (+26.9%)</td>" in page
    told, page = outcome((9, 2.0, 2.1, 2.0, 1.9), (9, 2.6, 2.7, 2.6, 2.5))
    assert told["training of an epoch"].change == "+30.0%"
    assert told["training of an epoch"].better == told["images/s"].better == -1
    assert "+30.0% worse</td>" in page


def test_numbers_of_one_run_alone_are_not_measured_in_the_other(tmp_path):
    with_gpu, without = read_run(make_run(tmp_path / "a")), read_run(make_run(tmp_path / "b", busy=None, layers=7))
    told = dict(differences(with_gpu, without))
    assert ("GPU busy", "97%", "not measured") in [(row.what, row.first, row.second) for row in told["Outcome"]]
    (row,) = told["Convolutions"]
    assert (row.what, row.first, row.second) == ("model.7.conv", "gemm: columns / columns / shifted", "not there")


def test_directions_and_units_of_changes(tmp_path):
    slow = make_run(tmp_path / "slow", epochs=5, wait=0.05, vram_mb=5000)
    quick = make_run(tmp_path / "quick", epochs=5, vram_mb=4000)
    change_column(quick / "results.csv", "metrics/mAP50-95(B)", [0.6] * 5)
    told = {row.what: row for row in dict(differences(read_run(slow), read_run(quick)))["Outcome"]}
    assert told["waited for data"].change == "-28.6 points"
    assert {what: row.better for what, row in told.items()} == {
        "verdict": 0, "images/s": 1, "waited for data": 1, "training of an epoch": 1, "peak GPU memory": 1,
        "GPU memory in use": 0, "mAP50-95(B), later half": 1,
    }  # fmt: skip
    assert told["peak GPU memory"].change == "-20.0%"
    (slow / "args.yaml").write_text("data: other.yaml\nepochs: 5\n")
    told = dict(differences(read_run(slow), read_run(quick)))["Outcome"]
    assert not any("mAP" in row.what for row in told)  # metrics of other data say nothing about the runs


def test_arguments_that_are_different_in_every_run_are_left_out(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    (first / "args.yaml").write_text("name: a\nsave_dir: x\nimgsz: 640\nlr0: 0.01\n")
    (second / "args.yaml").write_text("name: b\nsave_dir: y\nimgsz: 320\nbatch: 4\n")
    rows = dict(differences(read_run(first), read_run(second)))["Arguments of Ultralytics"]
    assert [(row.what, row.first, row.second) for row in rows] == [
        ("imgsz", "640", "320"),
        ("lr0", "0.01", "not there"),
        ("batch", "not there", "4"),
    ]
