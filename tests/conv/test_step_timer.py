"""Times of sampled steps: attributed to the right layers, without changing a bit of the result."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from yolo_rocm.conv import step_timer
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.seam import installed, patched
from yolo_rocm.conv.step_timer import StepTimer

CPU = torch.device("cpu")


def network() -> nn.Sequential:
    """Two layers of one shape, one of another, and a transposed one."""
    torch.manual_seed(0)
    same = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(2)]
    return nn.Sequential(*same, nn.Conv2d(4, 6, 1), nn.ConvTranspose2d(6, 4, 2, 2))


def run(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


def timed(report, model, x, number=1, named=True):
    report.timer = StepTimer(number, CPU)
    if named:
        with report.naming(model):
            result = run(model, x)
    else:
        result = run(model, x)
    timer, report.timer = report.timer, None
    timer.end()
    report.times.take(timer)
    return result


@pytest.mark.parametrize("engine", ["gemm", "aten", "vendor"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_timed_step_computes_the_same_bits(engine, layout):
    model, x = network().to(memory_format=layout), torch.randn(2, 4, 12, 12).to(memory_format=layout)
    patch = Patch(("cpu",), Planner(engine, vendor_library=True, remember=False))
    with installed(patch):
        plain, sampled = run(model, x), timed(patch.report, model, x)
    for a, b in zip(plain, sampled, strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_every_layer_gets_its_passes_and_they_fit_into_the_step():
    model, x = network(), torch.randn(2, 4, 12, 12)
    with patched(("cpu",), "gemm") as report:
        for number in (1, 2, 3):
            timed(report, model, x, number)
    rows = {row.name: row.as_dict() for row in report.layers()}
    assert list(rows) == ["0", "1", "2", "3"]
    for row in rows.values():
        assert set(row["times_ms"]) == {"forward", "grad_input", "grad_weight"}
        assert all(ms > 0 for ms in row["times_ms"].values())
        assert all(size > 0 for size in row["workspace_bytes"].values())
    total = sum(sum(row["times_ms"].values()) for row in rows.values())
    step = report.times.step()
    assert step["steps"] == [1, 2, 3]
    assert total < step["step_ms"] * 1.5  # sums of medians
    assert rows["0"]["times_ms"]["grad_weight"] == rows["1"]["times_ms"]["grad_weight"]  # one shape, divided


def at(monkeypatch, *spent: float) -> None:
    """Let the marks be a made clock: each span takes the next of `spent` seconds."""
    moments, now = [], 0.0
    for seconds in spent:
        moments += [now, now + seconds]
        now += seconds
    rest = iter([0.0, *moments, now])
    monkeypatch.setattr(step_timer, "mark", lambda device: next(rest))


def test_time_is_divided_as_the_forward_calls_were(monkeypatch):
    problem = object()
    at(monkeypatch, 1.0, 1.0, 2.0, 0.8)
    timer = StepTimer(1, CPU)
    for which, layer in (("forward", "a"), ("forward", "a"), ("forward", "b"), ("grad_weight", None)):
        began = step_timer.mark(CPU)
        timer.add(problem, which, layer, began, CPU)
    timer.end()
    times = step_timer.LayerTimes()
    times.take(timer)
    sharing = ["a", "b"]
    assert times.of(problem, "a", sharing) == pytest.approx({"forward": 2000, "grad_weight": 800 * 2 / 3})
    assert times.of(problem, "b", sharing) == pytest.approx({"forward": 2000, "grad_weight": 800 / 3})
    assert times.of(problem, "never ran", sharing) == {}
    assert times.of(object(), "a", sharing) == {}
    assert times.step() == {"sampled_steps": 1, "step_ms": pytest.approx(4800), "steps": [1]}


def test_steps_of_the_warm_up_are_dropped_once_there_are_others():
    times = step_timer.LayerTimes()
    times.warm_from = 3
    for number, steps in ((1, [1]), (2, [1, 2]), (3, [3]), (4, [3, 4])):
        timer = StepTimer(number, CPU)
        timer.end()
        times.take(timer)
        assert times.step()["steps"] == steps


def test_without_names_layers_of_a_shape_share_alike():
    model, x = network(), torch.randn(2, 4, 12, 12)
    with patched(("cpu",), "gemm") as report:
        with report.naming(model):
            run(model, x)
        timed(report, model, x, named=False)
    first, second, third, _ = (row.times_ms for row in report.layers())
    assert first == second
    assert set(third) == {"forward", "grad_input", "grad_weight"}


class Event:
    """A mark on a GPU that has passed or not."""

    def __init__(self, at: float, passed: bool) -> None:
        self.at, self.passed = at, passed

    def query(self) -> bool:
        """Tell without waiting."""
        return self.passed

    def elapsed_time(self, other: Event) -> float:
        """Return milliseconds; a real one raises or waits where either has not passed."""
        assert self.passed
        assert other.passed
        return other.at - self.at


def test_events_are_read_only_once_they_have_passed(monkeypatch):
    events = []

    def mark(device):
        events.append(Event(float(len(events)), passed=False))
        return events[-1]

    monkeypatch.setattr(step_timer, "mark", mark)
    problem, times = object(), step_timer.LayerTimes()
    timer = StepTimer(1, CPU)
    timer.add(problem, "forward", "a", mark(CPU), CPU)
    timer.end()
    times.take(timer)
    assert times.step()["step_ms"] is None
    for event in events:
        times.collect()
        assert times.of(problem, "a", ["a"]) == {}
        event.passed = True
    times.collect()
    assert times.of(problem, "a", ["a"]) == {"forward": 1.0}
    assert times.step() == {"sampled_steps": 1, "step_ms": 3.0, "steps": [1]}
