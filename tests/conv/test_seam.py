"""The seam: on while it should be, gone afterwards, invisible to everything above it."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, nullcontext

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.conv import seam
from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import InferencePlanner, Planner
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.report import ConvReport
from yolo_rocm.conv.seam import installed
from yolo_rocm.errors import EngineError, YoloRocmError

from ..sick_vendor import MESSAGE, sick_vendor
from ..tables import each_row

CPU = ("cpu",)


@pytest.fixture
def layer():
    """An input and a weight that want gradients."""
    torch.manual_seed(0)
    return torch.randn(2, 3, 9, 9, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)


def test_gemm_works_where_the_vendor_is_sick(sick, layer):
    with yolo_rocm.patched(CPU, "gemm") as report:
        F.conv2d(*layer).sum().backward()
    (served,) = report.served.values()
    assert (served.forward_calls, served.backward_calls, served.plan.engine) == (1, 1, "gemm")
    assert all(leaf.grad is not None for leaf in layer)


@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_native_kernels_are_reached_below_the_seam(layer, engine):
    with yolo_rocm.patched(CPU, engine):
        y = F.conv2d(*layer)
        for run in (lambda: F.conv2d(*layer), y.sum().backward):
            with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
                run()


def test_auto_takes_the_vendor_only_when_it_is_said_to_be_healthy(layer):
    for vendor, engine in ((True, "vendor"), (False, "gemm")):
        with yolo_rocm.patched(CPU, "auto", vendor=vendor) as report:
            F.conv2d(*layer)
        assert dict(report.engines()) == {engine: 1}


def test_patch_and_unpatch_count(sick, layer):
    first, second = yolo_rocm.patch(CPU, "gemm"), yolo_rocm.patch(CPU, "gemm")
    yolo_rocm.unpatch()
    F.conv2d(*layer)
    yolo_rocm.unpatch()
    assert (len(first.served), len(second.served)) == (1, 0)
    with pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)
    with pytest.raises(YoloRocmError, match="without a patch"):
        yolo_rocm.unpatch()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_everything_is_restored_after_an_error(layer, error):
    with pytest.raises(error), yolo_rocm.patched(CPU, "gemm"):
        raise error
    with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)


@pytest.mark.skipif(not hasattr(torch._C, "_get_deterministic_fill_uninitialized_memory"), reason="torch < 2.2")
@pytest.mark.parametrize("before", [True, False])
def test_new_memory_is_not_filled_while_patched(monkeypatch, before):
    # A trainer of Ultralytics >= 8.4 that an earlier test has built but not trained leaves this flag off.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", before)
    with pytest.raises(KeyboardInterrupt), yolo_rocm.patched(CPU, "gemm"):
        assert not torch.utils.deterministic.fill_uninitialized_memory
        raise KeyboardInterrupt
    assert torch.utils.deterministic.fill_uninitialized_memory is before


@each_row("weight, bias", [((4, 5, 3, 3), (4,)), *(((4, 3, 3, 3), bias) for bias in ((1,), (3,), (8,), (4, 1)))])
def test_wrong_calls_get_torchs_own_message(layer, weight, bias):
    """A bias of another shape could be spread over the channels, or be read beyond its end."""
    operands = layer[0], torch.randn(weight), torch.randn(bias)
    with pytest.raises(RuntimeError) as stock:
        F.conv2d(*operands)
    with yolo_rocm.patched(CPU, "gemm"), pytest.raises(RuntimeError) as ours:
        F.conv2d(*operands)
    assert str(ours.value) == str(stock.value)


def test_a_bias_of_another_device_or_data_type_is_left_to_torch():
    """A kernel would read its address."""
    x = torch.randn(2, 4, 5, 5)
    problem = ConvProblem.of(x, torch.randn(6, 4, 3, 3), (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    assert seam._fits(torch.randn(6), x, problem)
    assert not seam._fits(torch.randn(6, device="meta"), x, problem)
    assert not seam._fits(torch.randn(6).double(), x, problem)


def test_an_explicit_engine_that_cannot_serve_says_why():
    x, w = torch.ones(1, 1, 4, 4, dtype=torch.long), torch.ones(1, 1, 3, 3, dtype=torch.long)
    with yolo_rocm.patched(CPU, "gemm"), pytest.raises(EngineError) as error:
        F.conv2d(x, w)
    assert "windows: dtype torch.int64 is not floating point" in str(error.value)
    with yolo_rocm.patched(CPU, "auto") as report:
        assert F.conv2d(x, w).sum() == 36
    assert dict(report.engines()) == {"aten": 1}


@each_row("wanted", range(1, 8))
def test_gradients_that_are_asked_for_are_computed(sick, wanted):
    """Of input, weight and bias, each may be frozen alone."""
    tensors = [torch.randn(shape) for shape in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))]
    leaves = [each.requires_grad_(bool(wanted >> place & 1)) for place, each in enumerate(tensors)]
    with yolo_rocm.patched(CPU, "gemm"):
        F.conv2d(*leaves).sum().backward()
    assert [each.grad is not None for each in leaves] == [each.requires_grad for each in leaves]
    if leaves[2].requires_grad:
        assert leaves[2].grad.tolist() == [2 * 4 * 4] * 4


def test_the_off_switch(sick, layer, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM", "0")
    with yolo_rocm.patched(CPU, "gemm"), pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)
    yolo_rocm.patch(CPU, "gemm")
    yolo_rocm.unpatch()


def test_autocast_reaches_the_seam_in_its_dtype(layer):
    with yolo_rocm.patched(CPU, "gemm") as report, torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.conv2d(*layer)
    assert y.dtype == torch.bfloat16
    assert {problem.dtype for problem in report.served} == {torch.bfloat16}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_module_holds_an_ordinary_convolution():
    conv = torch.nn.Conv2d(3, 4, 3)
    with yolo_rocm.patched(CPU, "gemm"):
        traced = torch.jit.trace(conv, torch.randn(1, 3, 8, 8))
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert kinds.count("aten::_convolution") == 1
    assert "aten::bmm" not in kinds


def in_a_thread(task):
    """Run something in a thread of its own, and return its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(task()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("first_to_end", [0, 1], ids=["oldest first", "newest first"])
def test_the_newest_patch_decides_for_every_thread_whatever_the_order_they_end_in(layer, first_to_end):
    def calls() -> list[tuple[int, int]]:
        """Count forward and backward calls of each patch, after both in this thread and in another."""
        for run in (lambda task: task(), in_a_thread):
            run(lambda: F.conv2d(*layer)).sum().backward()
        served = [[entry for entry in patch.report.served.values()] for patch in patches]
        return [(sum(s.forward_calls for s in each), sum(s.backward_calls for s in each)) for each in served]

    patches = [Patch(CPU, Planner(engine, remember=False)) for engine in ("gemm", "aten")]
    opened = [ExitStack(), ExitStack()]
    opened[0].enter_context(installed(patches[0]))
    in_a_thread(lambda: opened[1].enter_context(installed(patches[1])))
    assert calls() == [(0, 0), (2, 2)]
    opened[first_to_end].close()
    assert calls() == ([(0, 0), (4, 4)] if first_to_end == 0 else [(2, 2), (2, 2)])
    opened[1 - first_to_end].close()
    assert seam.active_devices() == ()
    before = [dict(patch.report.engines()) for patch in patches]
    calls()
    assert [dict(patch.report.engines()) for patch in patches] == before
    assert seam._seam.libraries == {}


def test_a_network_that_computes_is_told_apart_by_layer_while_layers_are_named():
    """Its own patch serves its convolutions, but for calls that are named or timed."""
    patch, inference = (
        kind(CPU, planner("gemm", remember=False))
        for kind, planner in ((Patch, Planner), (InferencePatch, InferencePlanner))
    )
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)).requires_grad_(False)
    with installed(patch), computing(inference), torch.no_grad():
        with patch.report.naming(network):
            network(torch.randn(1, 3, 8, 8))
        assert not inference.report.served
        assert [row.name for row in patch.report.layers()] == ["0"]
        network(torch.randn(1, 3, 8, 8))
        assert [served.forward_calls for served in inference.report.served.values()] == [1]


def test_kernels_are_not_taken_from_under_a_thread_that_knows_nothing_of_them():
    """A thread waits for the GIL between finding a kernel and calling it; one destroyed meanwhile is freed memory."""
    x, weight = torch.randn(1, 4, 16, 16), torch.randn(4, 4, 3, 3)
    expected = F.conv2d(x, weight)
    stop, calls, errors = threading.Event(), [], []

    def guest(owner: bool) -> None:
        try:
            F.conv2d(x, weight)
            while not stop.is_set():
                with yolo_rocm.patched(CPU, engine="gemm") if owner else nullcontext():
                    torch.testing.assert_close(F.conv2d(x, weight), expected, rtol=1e-4, atol=1e-4)
                calls.append(1)
        except BaseException as error:  # what a thread raises is lost
            errors.append(error)

    guests = [threading.Thread(target=guest, args=(number == 3,)) for number in range(4)]
    with yolo_rocm.patched(CPU, engine="gemm"):  # older torch must have met a guest once
        for thread in guests:
            thread.start()
        while len(calls) < 30 and not errors:
            time.sleep(0.001)
    for _ in range(200):
        with yolo_rocm.patched(CPU, engine="gemm"):
            F.conv2d(x, weight)
    stop.set()
    for thread in guests:
        thread.join()
    assert not errors
    assert seam.active_devices() == ()
    seam._seam.install()  # older torch lets go, the guests being gone
    assert seam._seam.libraries == {}


def test_layers_that_ran_on_another_device_are_said_to_be_elsewhere():
    """A preset for the GPU, and a training on the CPU: nothing is `not reached yet`, nothing ever will be."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 1))
    report = ConvReport()
    with report.naming(model):
        model(torch.zeros(1, 3, 8, 8))
    assert report.summary() == "2 convolution layers, none of them on a device that rocm.conv.devices names"


@pytest.mark.parametrize("engine", ["gemm", "aten"])
@pytest.mark.parametrize("kind", ["1x1", "1x1, stride 2", "depthwise", "part of the channels", "both in part"])
def test_channels_last_goes_on_where_strides_alone_tell_it(engine, kind):
    """Weights that lie the same way in both layouts, contiguous inputs, and views, which are not contiguous at all."""
    size, groups = (3 if kind == "depthwise" else 1), (8 if kind == "depthwise" else 1)
    weight = torch.randn(8, 8 // groups, size, size).to(memory_format=torch.channels_last).requires_grad_()
    x = torch.randn(2, 8, 6, 5)
    if "part" in kind:
        x = torch.randn(2, 16, 6, 5).to(memory_format=torch.channels_last)[:, 4:12]
        if kind == "part of the channels":
            weight = weight.detach().to(memory_format=torch.contiguous_format).requires_grad_()
    x.requires_grad_()
    arguments = (x, weight, None, 2 if "stride" in kind else 1, 0, 1, groups)
    expected = F.conv2d(*arguments)
    wanted = torch.autograd.grad(expected.sum(), [x, weight])
    with yolo_rocm.patched(CPU, engine):
        y = F.conv2d(*arguments)
        found = torch.autograd.grad(y.sum(), [x, weight])
    assert y.stride() == expected.stride() == y.contiguous(memory_format=torch.channels_last).stride()
    for one, other in zip((y, *found), (expected, *wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
