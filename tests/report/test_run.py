"""The numbers of a run do not contradict each other, whatever its first steps did and however they were sampled."""

from __future__ import annotations

import re

import pytest

from yolo_rocm.report.head import tiles
from yolo_rocm.report.run_data import read_run

from .made_runs import STEP, change_facts, make_run

pytestmark = pytest.mark.once

WAIT = 0.001
STEP_MS = 1e3 * STEP


@pytest.mark.parametrize("setup", [0.0, 78.0], ids=lambda s: f"setup-{s:.0f}")
@pytest.mark.parametrize("busy", [None, 2.0, 40.0, 97.0], ids=lambda b: f"busy-{b}")
@pytest.mark.parametrize(
    ("host_ms", "device_ms"), [(None, None), (31.0, 33.7), (90.0, 95.0), (20.0, 70.0), (300.0, 310.0)]
)
def test_printed_numbers_agree(tmp_path, host_ms, device_ms, busy, setup):
    """Work fits into a step, a step into the time of its images; what compiling did to any of them is left out."""
    folder = make_run(tmp_path / "run", epochs=5, batches=28, wait=WAIT, busy=busy, setup=setup)
    change_facts(folder, step={"host_ms": host_ms, "device_ms": device_ms})
    run = read_run(folder)
    shown = {tile.label: tile.value for tile in tiles(run)}
    tolerance = 0.02 if setup else 0.5  # without a set-up, images/s has the start of the workers in it
    step_ms = 16e3 / shown["images/s"]
    assert step_ms == pytest.approx(STEP_MS + 1e3 * WAIT, rel=tolerance)
    assert shown["waited for data"] == pytest.approx(WAIT / (WAIT + STEP), rel=0.05)
    if "GPU busy" in shown:
        assert shown["GPU busy"] == pytest.approx((busy - 1) / 100, abs=0.015)
    launch = run.launch
    if launch is not None:
        assert launch.device_ms <= 1.1 * STEP_MS
        assert launch.device_ms + launch.after_ms == pytest.approx(STEP_MS, rel=0.02)
        if not launch.waits and "GPU busy" in shown:  # the GPU has work until it is through
            assert shown["GPU busy"] * STEP_MS >= launch.device_ms / 2
    assert (launch is None) == (device_ms in (None, 310.0))
    sentence = run.verdict.sentence
    for number in map(float, re.findall(r"([\d.]+) ms", sentence)):
        assert number <= 1.1 * STEP_MS, sentence
