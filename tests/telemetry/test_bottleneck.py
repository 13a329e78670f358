"""What held a training up, judged in one place for the line of an epoch and for the page of a run."""

from __future__ import annotations

import pytest

from yolo_rocm.telemetry.bottleneck import BOUND, CROWDED, FILLED, FULL, IDLE, SETS_THE_PACE, Room, StepLaunch, judge

from ..tables import each_row

pytestmark = pytest.mark.once


@each_row(
    ("facts", "kind", "words"),
    [
        ({"wait_share": None}, "unknown", ("Not measured",)),
        ({"wait_share": 0.01}, "compute", ("Not data-bound", "1.0%", "GPU or the host set the pace was not measured")),
        ({"wait_share": 0.01, "busy": 0.97}, "compute", ("GPU-bound", "1.0%", "busy 97%", "a faster engine")),
        ({"wait_share": BOUND}, "data", ("Data-bound", "10.0%", "1.11 times", "try more workers, cache=ram")),
        ({"wait_share": 1.0}, "data", ("100.0%",)),
        ({"wait_share": 0.5, "room": Room(0.99), "busy": 0.5, "launch": StepLaunch(41.0, 42.0)}, "data", ("50.0%",)),
        ({"wait_share": 0.5, "advice": "workers=8, cache=ram", "host": CROWDED}, "data", ("try cache=ram.",)),
        ({"wait_share": 0.5, "advice": "workers=8", "host": 1.0}, "data", ("try faster storage",)),
        ({"wait_share": 0.0, "room": Room(FULL)}, "memory", ("Memory-bound", "92%", "amp=True")),
        ({"wait_share": 0.0, "room": Room(0.99), "busy": FILLED}, "compute", ("busy 80%",)),
        ({"wait_share": 0.0, "room": Room(0.99), "busy": 0.7}, "memory", ("99%", "busy 70%", "no room")),
        ({"wait_share": 0.0, "room": Room(0.6, 32, 16), "busy": 0.7}, "memory", ("a batch of 32 did not fit",)),
        ({"wait_share": 0.0, "room": Room(0.6, 32, 32), "busy": 0.5}, "host", ("Host-bound",)),
        (
            {"wait_share": 0.01, "busy": 0.15, "launch": StepLaunch(41.0, 42.0, graphs=True), "room": Room(0.1)},
            "host",
            ("the GPU was busy only 15%", "graphs (rocm.step.graph=auto) or a larger batch (10% of the memory is in"),
        ),
        ({"wait_share": 0.0, "launch": StepLaunch(SETS_THE_PACE, 1.0)}, "host", ("Host-bound: the host", "try a lar")),
        ({"wait_share": 0.0, "launch": StepLaunch(12.0, 40.0)}, "compute", ("GPU-bound", "launches in 12.0 ms what")),
        ({"wait_share": 0.0, "busy": 0.5, "launch": StepLaunch(12.0, 40.0, after_ms=30.0)}, "host", ("30.0 ms more",)),
        ({"wait_share": 0.0, "busy": 0.5, "launch": StepLaunch(12.0, 40.0, after_ms=1.0)}, "host", ("try a larger",)),
        ({"wait_share": 0.0, "busy": 0.9, "launch": StepLaunch(41.0, 42.0)}, "compute", ("GPU-bound",)),
        ({"wait_share": 0.011, "busy": 0.15}, "host", ("only 15%", "waited 1.1%", "host", "set the pace")),
        ({"wait_share": 0.01, "compute": "CPU"}, "compute", ("CPU-bound",)),
        ({"wait_share": 0.01, "compute": "CPU", "host": 1.0}, "compute", ("100% busy, with this run or other",)),
        ({"wait_share": 0.25, "compute": "CPU", "host": 0.97}, "compute", ("CPU-bound: 25.0%", "97% of them was")),
        ({"wait_share": 0.25, "compute": "CPU"}, "unknown", ("Not judged", "25.0%", "was not measured")),
        ({"wait_share": 0.25, "compute": "CPU", "host": IDLE}, "data", ("the CPU waited 25.0%",)),
    ],
    ids=str,
)
def test_the_judgement(facts, kind, words):
    found = judge(**facts)
    assert found.kind == kind
    assert all(word in found.sentence for word in words)


def test_the_line_of_an_epoch_names_the_data_or_nothing():
    assert judge(0.5, advice="workers=8").short == "data-bound: try workers=8"
    for compute in ("GPU", "CPU"):
        assert judge(0.0, compute).short == "not data-bound"
    assert judge(0.25, "CPU", "workers=1").short == ""  # whether a worker would find an idle processor is not known
