"""What held a training up, judged in one place for the line of an epoch and for the page of a run."""

from __future__ import annotations

import pytest

from yolo_rocm.data.bottleneck import BOUND, FILLED, FULL, judge


@pytest.mark.parametrize(
    ("facts", "kind", "words"),
    [
        ({"wait_share": 0.01}, "compute", ("GPU-bound", "1.0%", "more workers would not help")),
        ({"wait_share": BOUND}, "data", ("Data-bound", "5.0%", "1.05 times", "try more workers")),
        ({"wait_share": 0.5, "advice": "workers=8"}, "data", ("waited 50.0%", "2.00 times", "try workers=8")),
        ({"wait_share": 0.5, "memory_share": 0.99, "busy": 0.5}, "data", ("Data-bound",)),
        ({"wait_share": 0.0, "memory_share": FULL}, "memory", ("Memory-bound", "92%", "amp=True")),
        ({"wait_share": 0.0, "memory_share": 0.99, "busy": FILLED}, "compute", ("busy 80%",)),
        ({"wait_share": 0.0, "memory_share": 0.99, "busy": 0.7}, "memory", ("99%", "busy 70%", "no room")),
        ({"wait_share": 0.0, "memory_share": 0.4, "busy": 0.3}, "compute", ("larger batch", "40% of the memory")),
        ({"wait_share": 0.01, "compute": "CPU"}, "compute", ("CPU-bound",)),
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
