"""What held a training up, judged in one place for the line of an epoch and for the page of a run."""

from __future__ import annotations

import pytest

from yolo_rocm.data.bottleneck import BOUND, CROWDED, FILLED, FULL, OTHERS, judge


@pytest.mark.parametrize(
    ("facts", "kind", "words"),
    [
        ({"wait_share": 0.01}, "compute", ("Not data-bound", "1.0%", "GPU or the host set the pace was not measured")),
        ({"wait_share": 0.01, "busy": 0.97}, "compute", ("GPU-bound", "1.0%", "busy 97%", "a faster engine")),
        ({"wait_share": BOUND}, "data", ("Data-bound", "5.0%", "1.05 times", "try more workers")),
        ({"wait_share": 0.5, "advice": "workers=8"}, "data", ("waited 50.0%", "2.00 times", "try workers=8")),
        ({"wait_share": 0.5, "memory_share": 0.99, "busy": 0.5}, "data", ("Data-bound",)),
        ({"wait_share": 0.0, "memory_share": FULL}, "memory", ("Memory-bound", "92%", "amp=True")),
        ({"wait_share": 0.0, "memory_share": 0.99, "busy": FILLED}, "compute", ("busy 80%",)),
        ({"wait_share": 0.0, "memory_share": 0.99, "busy": 0.7}, "memory", ("99%", "busy 70%", "no room")),
        (
            {"wait_share": 0.0, "memory_share": 0.4, "busy": 0.3},
            "host",
            ("larger batch (40% of the memory", "busy only 30%"),
        ),
        (
            {"wait_share": 0.011, "busy": 0.15},
            "host",
            ("Host-bound", "only 15%", "waited 1.1%", "host", "set the pace"),
        ),
        ({"wait_share": 0.01, "compute": "CPU"}, "compute", ("CPU-bound",)),
        (
            {"wait_share": 0.01, "compute": "CPU", "host": 1.0, "own": 0.12},
            "busy",
            ("Busy machine: other programs used 88%", "this training 12%"),
        ),
        ({"wait_share": 0.01, "compute": "CPU", "host": 1.0, "own": 0.97}, "compute", ("CPU-bound",)),
        ({"wait_share": 0.01, "compute": "CPU", "host": 0.5, "own": 0.1}, "compute", ("CPU-bound",)),
        (
            {"wait_share": 0.01, "compute": "CPU", "host": 1.0},
            "compute",
            ("CPU-bound", "in use to 100%, by which programs was not measured"),
        ),
        ({"wait_share": 0.0, "compute": "CPU", "host": CROWDED, "own": CROWDED - OTHERS}, "busy", ("Busy machine",)),
        (
            {"wait_share": 0.4, "host": 1.0, "own": 0.3, "busy": 0.5},
            "busy",
            ("40.0% of the time was spent waiting for data",),
        ),
        ({"wait_share": 0.01, "host": 1.0, "own": 0.3, "busy": FILLED}, "compute", ("GPU-bound",)),
        ({"wait_share": 1.0}, "data", ("100.0%",)),
        ({"wait_share": None}, "unknown", ("Not measured",)),
    ],
    ids=str,
)
def test_the_judgement(facts, kind, words):
    found = judge(**facts)
    assert found.kind == kind
    assert all(word in found.sentence for word in words)
    assert found.sentence.endswith(".")
    assert "\n" not in found.sentence


def test_the_line_of_an_epoch_names_the_data_or_nothing():
    assert judge(0.5, advice="workers=8").short == "data-bound: try workers=8"
    for compute in ("GPU", "CPU"):
        assert judge(0.0, compute).short == "not data-bound"
