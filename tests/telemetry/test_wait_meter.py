"""The share of an epoch that waits for data, its verdict, and the files."""

from __future__ import annotations

import csv

import pytest

from yolo_rocm.data.reader import Trace
from yolo_rocm.telemetry import wait_meter as meters
from yolo_rocm.telemetry.wait_meter import EPOCHS_FILE, Meter


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(meters.time, "monotonic", lambda: now[0])
    return now


def an_epoch(
    meter: Meter, clock: list[float], number: int, wait: float, step: float = 1.0, batches: int = 10, set_up=()
):
    meter.begin(number)
    for batch in range(batches):
        asked = clock[0]
        clock[0] += 3.0 if batch == 0 else wait  # workers start
        stages = {"load": 0.1, "augment": 0.3, "collate": 0.01}
        trace = Trace(batch, 4, stages)
        meter.observe("train", trace, asked, clock[0])
        clock[0] += step
        if batch + 1 in set_up:
            clock[0] += 70.0
            meter.set_up(batch + 1)
    return meter.end_training()


def test_a_wait_is_a_share_of_the_epoch_after_the_first_batch(clock):
    summary = an_epoch(Meter(), clock, 1, wait=0.25)
    assert (summary.start_s, summary.images, summary.augment_s) == pytest.approx((3.0, 40, 3.0))
    assert (summary.wait_s, summary.wait_share) == pytest.approx((2.25, 2.25 / 12.25))
    assert summary.verdict.startswith("data-bound: try ")


def test_steps_that_compile_and_measure_do_not_count(clock):
    summary = an_epoch(Meter(), clock, 1, wait=0.25, set_up=(1, 4))
    assert (summary.seconds, summary.start_s, summary.setup_s) == pytest.approx((155.25, 3.0, 147.75))
    assert (summary.batches, summary.images, summary.wait_s) == pytest.approx((6, 24, 1.5))
    line = "epoch 1: waited 20.0% for data, 3.0 s until the first batch, 147.8 s until steps were set up, 3 images/s"
    assert str(summary) == line
    alone = an_epoch(Meter(), clock, 1, wait=0.25, batches=1, set_up=(1,))
    assert str(alone) == "epoch 1: all of its 74.0 s set up its steps"
    assert an_epoch(Meter(), clock, 1, wait=0.25, batches=4, set_up=(1, 4)).batches == 3  # unless it has no others
    second = an_epoch(Meter(), clock, 2, wait=0.25)
    assert (second.setup_s, second.batches, second.began) == (0.0, 10, second.began)


def test_the_file_gets_one_row_an_epoch(clock, tmp_path):
    meter = Meter()
    for epoch in (1, 2):
        summary = an_epoch(meter, clock, epoch, 0.1, batches=2)
        meter.write(tmp_path, summary)
    with (tmp_path / EPOCHS_FILE).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert (rows[1]["wait_s"], rows[1]["augment_s"], rows[1]["verdict"]) == ("0.1000", "0.6000", "not data-bound")
    meter.write(tmp_path, an_epoch(meter, clock, 1, 0.1))  # a new run in the same folder begins a new file
    assert len((tmp_path / EPOCHS_FILE).read_text().splitlines()) == 2
