"""Which steps are sampled."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from yolo_rocm.conv.seam import patched
from yolo_rocm.telemetry.steps import SampledSteps


def sampled(epochs: int, batches: int, wanted: bool = True) -> list[tuple[int, int]]:
    steps, found = SampledSteps(wanted), []
    for epoch in range(1, epochs + 1):
        steps.epoch_starts()
        found += [(epoch, batch) for batch in range(1, batches + 1) if steps.batch_starts()]
    return found


def test_a_few_at_the_start_then_one_in_ten_epochs():
    assert sampled(20, 100) == [*((1, batch) for batch in (2, 3, 5, 6, 7)), (10, 2), (20, 2)]


def test_short_epochs_count_together():
    assert sampled(5, 2) == [(1, 2), (2, 1), (3, 1), (3, 2), (4, 1)]


def test_none_when_not_wanted():
    assert sampled(20, 10, wanted=False) == []


def step(steps: SampledSteps, report) -> None:
    if steps.batch_starts():
        steps.begin(report, None, torch.device("cpu"))
    F.conv2d(torch.ones(1, 2, 8, 8), torch.ones(3, 2, 3, 3))


def test_spare_steps_give_way_to_warm_ones_and_broken_ones_are_dropped():
    steps = SampledSteps()
    steps.epoch_starts()
    with patched(("cpu",), "gemm") as report:
        for number in range(1, 8):
            step(steps, report)
            if number != 6:  # this one ended in an error: the next batch starts without its end
                steps.batch_ends()
            assert (report.timer is not None) == (number == 6)
            if number == 4:
                assert report.times.step()["steps"] == [2, 3]
    assert report.times.step()["steps"] == [5, 7]
    assert report.times.step()["sampled_steps"] == 2
