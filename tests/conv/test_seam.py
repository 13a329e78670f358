"""The seam: on while it should be, gone afterwards, invisible to everything above it."""

from __future__ import annotations

import queue
import threading
import time
import warnings

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.conv import seam
from yolo_rocm.conv.report import ConvReport
from yolo_rocm.errors import ConfigError, EngineError, YoloRocmError

from ..sick_vendor import MESSAGE, sick_vendor

CPU = ("cpu",)


@pytest.fixture
def layer():
    """An input and a weight that want gradients."""
    torch.manual_seed(0)
    return torch.randn(2, 3, 9, 9, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)


def test_the_sick_vendor_kills_stock_torch_forward_and_backward(layer):
    with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)
    y = F.conv2d(*layer)
    with sick_vendor(forward=False), pytest.raises(RuntimeError, match=MESSAGE):
        y.sum().backward()
    F.conv2d(*layer).sum().backward()


def test_gemm_works_where_the_vendor_is_sick(sick, layer):
    with yolo_rocm.patched(CPU, "gemm") as report:
        F.conv2d(*layer).sum().backward()
    (served,) = report.served.values()
    assert (served.forward_calls, served.backward_calls, served.plan.engine) == (1, 1, "gemm")
    assert all(leaf.grad is not None for leaf in layer)


@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_native_kernels_are_reached_below_the_seam(sick, layer, engine):
    with yolo_rocm.patched(CPU, engine), pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)


def test_auto_takes_the_vendor_only_when_it_is_said_to_be_healthy(layer):
    for vendor, engine in ((True, "vendor"), (False, "gemm")):
        with yolo_rocm.patched(CPU, "auto", vendor=vendor) as report:
            F.conv2d(*layer)
        assert dict(report.engines()) == {engine: 1}


def test_nested_patches_count_and_the_newest_serves(layer):
    with yolo_rocm.patched(CPU, "gemm") as outer:
        with yolo_rocm.patched(CPU, "aten") as inner:
            F.conv2d(*layer)
        F.conv2d(*layer)
        assert seam.active_devices() == CPU
    assert dict(inner.engines()) == {"aten": 1}
    assert dict(outer.engines()) == {"gemm": 1}
    assert seam.active_devices() == ()


def test_patch_and_unpatch_count(sick, layer):
    first = yolo_rocm.patch(CPU, "gemm")
    second = yolo_rocm.patch(CPU, "gemm")
    yolo_rocm.unpatch()
    F.conv2d(*layer)
    yolo_rocm.unpatch()
    assert (len(first.served), len(second.served)) == (1, 0)
    with pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)
    with pytest.raises(YoloRocmError, match="without a patch"):
        yolo_rocm.unpatch()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_everything_is_restored_after_an_error(layer, error):
    with pytest.raises(error), yolo_rocm.patched(CPU, "gemm"):
        raise error
    with sick_vendor(), pytest.raises(RuntimeError, match=MESSAGE):
        F.conv2d(*layer)


def test_an_interrupt_inside_a_convolution_restores_and_arrives(layer, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("yolo_rocm.conv.algorithms.columns.Columns.forward", interrupted)
    with pytest.raises(KeyboardInterrupt), yolo_rocm.patched(CPU, "gemm"):
        F.conv2d(*layer)


def test_no_warning_is_printed(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with yolo_rocm.patched(("cpu", "cuda"), "gemm"):
                F.conv2d(*layer).sum().backward()


@pytest.mark.skipif(not hasattr(torch._C, "_get_deterministic_fill_uninitialized_memory"), reason="torch < 2.2")
@pytest.mark.parametrize("before", [True, False])
def test_new_memory_is_not_filled_while_patched(monkeypatch, before):
    # A trainer of Ultralytics >= 8.4 that an earlier test has built but not trained leaves this flag off.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", before)
    with pytest.raises(KeyboardInterrupt), yolo_rocm.patched(CPU, "gemm"):
        assert not torch.utils.deterministic.fill_uninitialized_memory
        raise KeyboardInterrupt
    assert torch.utils.deterministic.fill_uninitialized_memory is before


def test_threads_share_the_seam_and_each_gets_right_results(sick):
    torch.manual_seed(1)
    x, w = torch.randn(2, 4, 12, 12, dtype=torch.double), torch.randn(4, 4, 3, 3, dtype=torch.double)
    with yolo_rocm.patched(CPU, "gemm"):
        expected = F.conv2d(x, w)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(40):
                with yolo_rocm.patched(CPU, "gemm"):
                    if not torch.equal(F.conv2d(x, w), expected):
                        wrong.append("values")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_backward_in_another_thread_uses_the_seam(sick, layer):
    with yolo_rocm.patched(CPU, "gemm"):
        y = F.conv2d(*layer).sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
    assert layer[1].grad is not None


def test_wrong_calls_get_torchs_own_message(layer):
    x, _ = layer
    bad = torch.randn(4, 5, 3, 3)
    with pytest.raises(RuntimeError) as stock:
        F.conv2d(x, bad)
    with yolo_rocm.patched(CPU, "gemm"), pytest.raises(RuntimeError) as ours:
        F.conv2d(x, bad)
    assert str(ours.value) == str(stock.value)


def test_an_explicit_engine_that_cannot_serve_says_why():
    x, w = torch.ones(1, 1, 4, 4, dtype=torch.long), torch.ones(1, 1, 3, 3, dtype=torch.long)
    with yolo_rocm.patched(CPU, "gemm"), pytest.raises(EngineError) as error:
        F.conv2d(x, w)
    assert "unfold: dtype torch.int64 is not floating point" in str(error.value)
    with yolo_rocm.patched(CPU, "auto") as report:
        assert F.conv2d(x, w).sum() == 36
    assert dict(report.engines()) == {"aten": 1}


@pytest.mark.parametrize("devices", [("gpu",), (), "cpu", ("cpu", "hip")])
def test_wrong_devices_are_refused(devices):
    with pytest.raises(ConfigError, match="Allowed: cuda, cpu"), yolo_rocm.patched(devices):
        pass


def test_wrong_engine_offers_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'gemm'"), yolo_rocm.patched(CPU, "gem"):
        pass


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


class PatchedThread(threading.Thread):
    """Holds a patch of its own and runs what it is given, until it is told to end."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.work: queue.Queue = queue.Queue()
        self.engine, self.report = engine, None

    def run(self) -> None:
        """Hold the patch."""
        with yolo_rocm.patched(CPU, engine=self.engine) as self.report:
            while (task := self.work.get()) is not None:
                task()
                self.work.task_done()
            self.work.task_done()

    def do(self, task) -> None:
        """Run a task in the thread, and wait for it; None ends it."""
        self.work.put(task)
        self.work.join()

    def backward_calls(self) -> int:
        """Count the backward calls this thread's patch has served."""
        return sum(served.backward_calls for served in self.report.served.values())


def test_a_backward_pass_in_nobodys_thread_goes_where_its_forward_pass_went():
    """Autograd runs the backward pass of a GPU in a thread of its own, while patches of two threads are on."""
    x, grad = torch.randn(1, 2, 6, 6), torch.ones(1, 2, 4, 4)
    early, first, second = (torch.randn(2, 2, 3, 3) for _ in range(3))
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    older, newer = PatchedThread("gemm"), PatchedThread("aten")
    older.start()
    older.do(lambda: torch.ops.aten.convolution(x, early, None, *geometry))  # when there was no choice yet
    newer.start()
    newer.do(lambda: torch.ops.aten.convolution(x, second, None, *geometry))
    older.do(lambda: torch.ops.aten.convolution(x, first, None, *geometry))
    found = []
    try:
        for weight in (early, first, second):
            torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, [True, True, False])
            found.append((older.backward_calls(), newer.backward_calls()))
    finally:
        for thread in (older, newer):
            thread.do(None)
            thread.join()
    assert found == [(1, 0), (2, 0), (2, 1)]
    assert seam._forwards == {}


def test_a_thread_with_a_patch_for_another_device_is_not_served_by_a_strangers():
    stranger = PatchedThread("gemm")
    stranger.start()
    stranger.do(lambda: None)
    try:
        with yolo_rocm.patched(("cuda",)):
            F.conv2d(torch.zeros(1, 2, 6, 6), torch.zeros(2, 2, 3, 3))
        assert not stranger.report.served
        F.conv2d(torch.zeros(1, 2, 6, 6), torch.zeros(2, 2, 3, 3))  # a thread with none is
        assert stranger.report.served
    finally:
        stranger.do(None)
        stranger.join()
        seam.settle()  # this thread was a guest


def test_kernels_are_not_taken_from_under_a_thread_that_knows_nothing_of_them():
    """A thread waits for the GIL between finding a kernel and calling it; one destroyed meanwhile is freed memory."""
    x, weight = torch.randn(1, 4, 16, 16), torch.randn(4, 4, 3, 3)
    expected = F.conv2d(x, weight)
    stop, calls, errors = threading.Event(), [], []

    def guest() -> None:
        try:
            F.conv2d(x, weight)
            while not stop.is_set():
                torch.testing.assert_close(F.conv2d(x, weight), expected, rtol=1e-4, atol=1e-4)
                calls.append(1)
        except BaseException as error:  # what a thread raises is lost
            errors.append(error)

    guests = [threading.Thread(target=guest) for _ in range(3)]
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
    seam.settle()  # older torch lets go, the guests being gone
    assert seam._libraries == {}


def test_layers_that_ran_on_another_device_are_said_to_be_elsewhere():
    """A preset for the GPU, and a training on the CPU: nothing is `not reached yet`, nothing ever will be."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 1))
    report = ConvReport()
    with report.naming(model):
        model(torch.zeros(1, 3, 8, 8))
    assert report.summary() == "2 convolution layers, none of them on a device that rocm.conv.devices names"


@pytest.mark.parametrize("engine", ["gemm", "aten"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_results_are_laid_out_as_the_operands_are(engine, layout):
    """Every pass, as torch promises to its compiler."""
    x = torch.randn(2, 8, 6, 5).contiguous(memory_format=layout).requires_grad_()
    weight = torch.randn(6, 8, 3, 3).contiguous(memory_format=layout).requires_grad_()
    with yolo_rocm.patched(CPU, engine):
        y = F.conv2d(x, weight, None, 1, 1)
        grads = torch.autograd.grad(y.sum(), [x, weight])
    for result in (y, *grads):
        assert result.stride() == result.contiguous(memory_format=layout).stride()
        assert result.is_contiguous() == (layout is torch.contiguous_format)
