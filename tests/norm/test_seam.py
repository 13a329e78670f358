"""The seam: every BatchNorm while it is on, by whom it is computed, and nothing left afterwards."""

from __future__ import annotations

import copy
import threading
import time
import warnings
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.conv.seam import patched as conv_patched
from yolo_rocm.errors import ConfigError, EngineError
from yolo_rocm.norm import seam
from yolo_rocm.norm.native import reachable
from yolo_rocm.norm.seam import installed, patched

from ..sick_vendor import MESSAGE, sick_norm
from .normalisations import CPU, needs_native, patch_of

NATIVE = "aten" if reachable("cpu") else "gemm"  # what heuristics take on a CPU


@pytest.fixture
def layer():
    """A BatchNorm and an input that want gradients."""
    torch.manual_seed(0)
    return torch.nn.BatchNorm2d(4), torch.randn(2, 4, 5, 5, requires_grad=True)


def step(bn, x):
    """Return what a step of a layer computes: output, gradients, running statistics; the layer stays as it is."""
    bn, leaf = copy.deepcopy(bn), x.detach().clone().requires_grad_()
    y = bn(leaf)
    y.square().sum().backward()
    grads = [leaf.grad, *(parameter.grad for parameter in bn.parameters())]
    return [y.detach(), *grads, *(b.float() for b in bn.buffers())]


def test_sick_kernels_kill_stock_torch(layer):
    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)
    step(*layer)


@pytest.mark.parametrize("training", [True, False])
def test_ours_works_where_torchs_own_kernels_are_sick(layer, training):
    bn, x = layer
    bn.train(training)
    expected = step(bn, x)
    with sick_norm(), patched(CPU, "gemm") as report:
        found = step(bn, x)
    (served,) = report.served.values()
    assert (served.forward_calls, served.backward_calls, served.plan.engine) == (1, 1, "gemm")
    assert served.problem.training is training
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@needs_native
@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_native_kernels_are_reached_below_the_seam(layer, engine):
    with sick_norm(), patched(CPU, engine), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)
    expected = step(*layer)
    with patched(CPU, engine) as report:
        found = step(*layer)
    assert dict(report.engines()) == {engine: 1}
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.skipif(reachable("cpu"), reason="this torch gives a way to its kernels")
@pytest.mark.parametrize("engine", ["vendor", "aten"])
def test_torch_is_left_alone_where_it_is_asked_for_and_cannot_be_reached(layer, engine):
    with patched(CPU, engine) as report:
        step(*layer)
        assert seam.active_devices() == ()
    assert not report.served
    with pytest.raises(EngineError, match="gives no way to its kernels"):
        patch_of(engine).lookup(layer[1], *[None] * 4, True)


def test_a_graph_outlives_the_patch_and_precedes_it(layer):
    bn, x = layer
    expected = torch.autograd.grad(bn(x).square().sum(), [x, *bn.parameters()])
    with patched(CPU, "gemm"):
        inside = bn(x).square().sum()
    outside = bn(x).square().sum()
    torch.testing.assert_close(torch.autograd.grad(inside, [x, *bn.parameters()]), expected)
    with patched(CPU, "gemm"):
        torch.testing.assert_close(torch.autograd.grad(outside, [x, *bn.parameters()]), expected)


def test_auto_takes_torchs_own_on_a_cpu(layer):
    with patched(CPU) as report:
        step(*layer)
    assert dict(report.engines()) == {NATIVE: 1}


# torch's own samples.


# Calls that are torch's own business.


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("training", [True, False])
def test_a_traced_module_holds_an_ordinary_batch_norm(layer, training):
    bn, x = layer
    bn.train(training)
    with patched(CPU, "gemm"):
        traced = torch.jit.trace(bn, x.detach(), check_trace=False)
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert kinds.count("aten::batch_norm") == 1
    assert not {"aten::addcmul", "aten::var_mean"} & set(kinds)


def test_autocast_reaches_the_seam_with_half_precision_input(layer):
    bn, x = layer
    with patched(CPU, "gemm") as report, torch.autocast("cpu", dtype=torch.bfloat16):
        y = bn(F.conv2d(x, torch.ones(4, 4, 1, 1)))
        y.sum().backward()
    assert y.dtype == torch.bfloat16
    assert {problem.dtype for problem in report.served} == {torch.bfloat16}


# On, off, nested, from other threads.


def test_nested_patches_count_and_the_newest_serves(layer):
    bn, x = layer
    outer, inner = patch_of("gemm"), patch_of("gemm")
    with installed(outer):
        with installed(inner):
            bn(x)
        bn(x)
        assert seam.active_devices() == CPU
        assert seam.serving("cpu") is outer
    assert seam.serving("cpu") is None
    assert [sum(s.forward_calls for s in p.report.served.values()) for p in (inner, outer)] == [1, 1]


def test_convolutions_and_normalisations_are_patched_at_once(layer):
    bn, x = layer
    with patched(CPU, "gemm") as norms, conv_patched(CPU, "gemm") as convolutions:
        bn(F.conv2d(x, torch.ones(4, 4, 3, 3))).sum().backward()
    assert len(norms.served) == len(convolutions.served) == 1


@pytest.mark.parametrize("first_to_end", [0, 1], ids=["oldest first", "newest first"])
def test_patches_end_in_any_order(layer, first_to_end):
    bn, x = layer
    patches, opened = [patch_of(), patch_of()], [ExitStack(), ExitStack()]
    for patch, stack in zip(patches, opened, strict=True):
        stack.enter_context(installed(patch))
    opened[first_to_end].close()
    assert seam.serving("cpu") is patches[1 - first_to_end]
    opened[1 - first_to_end].close()
    bn(x)
    assert not any(patch.report.served for patch in patches)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_everything_is_restored_after_an_error(layer, error):
    with pytest.raises(error), patched(CPU, "gemm"):
        raise error
    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)


def test_an_interrupt_inside_a_pass_restores_and_arrives(layer, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("yolo_rocm.norm.pytorch.Torch.forward", interrupted)
    with pytest.raises(KeyboardInterrupt), patched(CPU, "gemm"):
        step(*layer)


def test_no_warning_is_printed(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with patched(("cpu", "cuda"), "gemm"):
                step(*layer)


def test_the_off_switch(layer, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM", "0")
    with sick_norm(), patched(CPU, "gemm"), pytest.raises(RuntimeError, match=MESSAGE):
        step(*layer)


@pytest.mark.parametrize("devices", [("gpu",), (), "cpu"])
def test_wrong_devices_are_refused(devices):
    with pytest.raises(ConfigError, match="Allowed: cuda, cpu"), patched(devices):
        pass


def test_threads_get_the_same_bits(layer):
    with patched(CPU, "gemm"):
        expected = step(*layer)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(20):
                with patched(CPU, "gemm"):
                    if not all(map(torch.equal, step(*layer), expected)):
                        wrong.append("values")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_kernels_are_not_taken_from_under_a_thread_that_knows_nothing_of_them(layer):
    expected = step(*layer)
    stop, calls, errors = threading.Event(), [], []

    def guest() -> None:
        try:
            while not stop.is_set():
                torch.testing.assert_close(step(*layer), expected, rtol=1e-4, atol=1e-4)
                calls.append(1)
        except BaseException as error:  # what a thread raises is lost
            errors.append(error)

    guests = [threading.Thread(target=guest) for _ in range(3)]
    with patched(CPU, "gemm"):  # older torch must have met a guest once
        for thread in guests:
            thread.start()
        while len(calls) < 10 and not errors:
            time.sleep(0.001)
    for _ in range(100):
        with patched(CPU, "gemm"):
            step(*layer)
    stop.set()
    for thread in guests:
        thread.join()
    assert not errors
    seam._seam.install()  # older torch lets go, the guests being gone
    assert seam._seam.libraries == {}


# What a patch knows.


def test_a_call_is_found_again_until_plans_change(layer):
    bn, x = layer
    patch = patch_of()
    arguments = (x, bn.weight, bn.bias, bn.running_mean, bn.running_var, True)
    call = patch.lookup(*arguments)
    assert patch.lookup(*arguments) is call
    assert patch.route(call.route.problem) is call.route
    patch.planner.use({call.route.problem: {"forward": "torch", "backward": "torch"}})
    again = patch.lookup(*arguments)
    assert again is not call
    assert again.route.served is call.route.served
    assert patch.renewed().planner is patch.planner
    assert not patch.renewed().report.served


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_a_parameter_of_another_device_is_left_to_torch_also_after_a_good_call(layer, place):
    bn, x = layer
    patch = patch_of()
    arguments = [x, bn.weight, bn.bias, bn.running_mean, bn.running_var, True]
    assert patch.lookup(*arguments) is not None
    arguments[place] = arguments[place].to("meta")
    assert patch.lookup(*arguments) is None


def test_the_report(layer):
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 1), torch.nn.BatchNorm2d(6), torch.nn.BatchNorm2d(6))
    patch = patch_of()
    assert patch.report.summary() == "0 BatchNorm shapes: none yet"
    with installed(patch):
        with patch.report.naming(model):
            model(layer[1]).sum().backward()
            patch.report.announce(layer[0])  # no layer of the model
            layer[0](layer[1])
        model(layer[1])
    assert patch.report.summary() == "2 BatchNorm layers: 2 gemm"
    data = patch.report.as_dict()
    assert [row["layer"] for row in data["layers"]] == ["1", "2"]
    assert {row["forward"] for row in data["layers"]} == {"torch"}
    assert [(row["forward_calls"], row["backward_calls"]) for row in data["problems"]] == [(4, 2), (1, 0)]
    assert data["problems"][0]["problem"] == "batch norm on 2x6x5x5 float32 cpu"
