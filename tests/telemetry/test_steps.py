"""Which steps are sampled."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from yolo_rocm.conv.seam import patched
from yolo_rocm.telemetry.places import LOSS, NETWORK
from yolo_rocm.telemetry.steps import LAUNCH, LAYERS, SampledSteps


def sampled(epochs: int, batches: int, wanted: bool = True, what: str = LAYERS) -> list[tuple[int, int]]:
    steps, found = SampledSteps(wanted), []
    for epoch in range(1, epochs + 1):
        steps.epoch_starts()
        found += [(epoch, batch) for batch in range(1, batches + 1) if steps.batch_starts() == what]
    return found


def test_a_few_at_the_start_then_one_in_ten_epochs():
    assert sampled(20, 100) == [*((1, batch) for batch in (2, 3, 5, 6, 7)), (10, 2), (20, 2)]


def test_steps_like_all_others_show_what_the_host_takes():
    assert sampled(20, 100, what=LAUNCH) == [*((1, batch) for batch in (8, 9, 10)), (10, 3), (20, 3)]


def step(steps: SampledSteps, report) -> None:
    if steps.batch_starts() == LAYERS:
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


@contextmanager
def telling(told, reached):
    told.append(reached)
    yield
    told.append("left")


def test_what_fails_in_the_timing_of_a_step_costs_its_times_alone():
    steps, model, told = SampledSteps(), torch.nn.Conv2d(2, 3, 3), []
    steps.epoch_starts()
    with patched(("cpu",), "gemm") as report:
        for _ in range(6):
            if steps.batch_starts() == LAYERS:
                steps.begin(report, model, torch.device("cpu"), lambda reached: telling(told, reached))
                told[-1](NETWORK, model(torch.ones(1, 2, 8, 8)))
                told[-1](LOSS, "no tensor at all")
            steps.batch_ends()
    assert told[1::2] == ["left"] * 4
    assert report.times.step()["steps"] == [5, 6]
    assert steps.facts() == {}
    assert not torch.nn.modules.module._global_forward_hooks


def test_the_time_of_the_optimizer_is_divided_among_the_steps_it_is_for():
    def facts(optimizer, accumulate):
        steps = SampledSteps()
        result = {"convolution": 8.0, "optimizer": optimizer}
        steps._by_class.take(5, SimpleNamespace(has_passed=lambda: True, result=lambda: result))
        return steps.facts(accumulate)["classes_ms"]

    assert facts(2.0, 4) == {"convolution": 8.0, "optimizer": 0.5}
    assert facts(0.0, 4) == {"convolution": 8.0}  # nobody has seen how long it takes


def test_the_last_cold_step_is_one_of_the_first_epoch():
    def cold(batches):
        steps, found = SampledSteps(), []
        for epoch in (1, 2):
            steps.epoch_starts()
            for batch in range(1, batches + 1):
                steps.batch_starts()
                found += [(epoch, batch)] if steps.is_last_cold else []
        return found

    assert (cold(9), cold(2)) == ([(1, 4)], [])
