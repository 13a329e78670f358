"""Times of sampled steps: attributed to the right layers, without changing a bit of the result."""

from __future__ import annotations

import itertools

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


def timed(report, model, x, number=1):
    report.timer = StepTimer(number, CPU)
    with report.naming(model):
        result = run(model, x)
    timer, report.timer = report.timer, None
    timer.end()
    report.times.take(timer)
    return result


@pytest.mark.parametrize(
    ("engine", "layout"),
    [("gemm", torch.channels_last), ("aten", torch.contiguous_format), ("vendor", torch.channels_last)],
    ids=str,
)
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


def test_without_names_layers_of_a_shape_share_alike():
    """As in a compiled model."""
    model, x = network(), torch.randn(2, 4, 12, 12)
    with patched(("cpu",), "gemm") as report:
        with report.naming(model):
            run(model, x)
        report.timer = timer = StepTimer(1, CPU)
        run(model, x)
        report.timer = None
    timer.end()
    report.times.take(timer)
    layers = [row.times_ms for row in report.layers()]
    assert layers[0] == layers[1]
    assert sum(sum(each.values()) for each in layers) == pytest.approx(sum(ms for *_, ms in timer.passes()))


def test_events_are_read_only_once_they_have_passed(monkeypatch):
    """A real one raises or waits where it has not."""
    now, moments = [-1], itertools.count()
    monkeypatch.setattr(step_timer, "mark", lambda device: next(moments))
    monkeypatch.setattr(step_timer, "passed", lambda moment: moment <= now[0])
    monkeypatch.setattr(step_timer, "milliseconds", lambda start, stop: float(stop - start))
    problem, times, timer = object(), step_timer.LayerTimes(), StepTimer(1, CPU)
    timer.add(problem, "forward", "a", step_timer.mark(CPU), CPU)
    timer.end()
    times.take(timer)
    for now[0] in range(3):
        times.collect()
        assert times.of(problem, "a", ["a"]) == {}
    now[0] = 3
    assert times.step() == {"sampled_steps": 1, "step_ms": 3.0, "steps": [1]}
    assert times.of(problem, "a", ["a"]) == {"forward": 1.0}


def at(monkeypatch, *spent: float) -> None:
    """Let the marks be a made clock: each span takes the next of `spent` seconds."""
    moments, now = [], 0.0
    for seconds in spent:
        moments += [now, now + seconds]
        now += seconds
    rest = iter([0.0, *moments, now])
    monkeypatch.setattr(step_timer, "mark", lambda device: next(rest))


def test_time_is_divided_as_the_forward_calls_were(monkeypatch):
    problem, unnamed = object(), object()
    at(monkeypatch, 1.0, 1.0, 2.0, 0.8, 0.2)
    timer = StepTimer(1, CPU)
    calls = [(problem, "forward", "a"), (problem, "forward", "a"), (problem, "forward", "b")]
    for *call, layer in (*calls, (problem, "grad_weight", None), (unnamed, "forward", None)):
        timer.add(*call, layer, step_timer.mark(CPU), CPU)
    timer.end()
    times = step_timer.LayerTimes()
    times.take(timer)
    sharing = ["a", "b"]
    assert times.of(problem, "a", sharing) == pytest.approx({"forward": 2000, "grad_weight": 800 * 2 / 3})
    assert times.of(problem, "b", sharing) == pytest.approx({"forward": 2000, "grad_weight": 800 / 3})
    assert times.of(problem, "never ran", sharing) == {}
    assert times.of(object(), "a", sharing) == {}
    assert times.of(unnamed, "c", ["c", "d"]) == pytest.approx({"forward": 100})  # as in a compiled model: alike
    assert times.step() == {"sampled_steps": 1, "step_ms": pytest.approx(5000), "steps": [1]}


def test_steps_of_the_warm_up_are_dropped_once_there_are_others():
    times = step_timer.LayerTimes()
    times.warm_from = 3
    for number, steps in ((1, [1]), (2, [1, 2]), (3, [3]), (4, [3, 4])):
        timer = StepTimer(number, CPU)
        timer.end()
        times.take(timer)
        assert times.step()["steps"] == steps
