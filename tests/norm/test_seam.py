"""The seam: every BatchNorm while it is on, torch's own contracts kept, and nothing left afterwards."""

from __future__ import annotations

import copy
import itertools
import threading
import time
import warnings
from contextlib import ExitStack, nullcontext

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.conv.seam import patched as conv_patched
from yolo_rocm.engines import dispatcher
from yolo_rocm.errors import ConfigError, EngineError
from yolo_rocm.norm import seam
from yolo_rocm.norm.algorithms.native import reachable
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed, patched

from ..sick_vendor import MESSAGE, sick_norm
from ..torch_samples import NORMALISATIONS

CPU = ("cpu",)
NATIVE = "aten" if reachable("cpu") else "gemm"  # what heuristics take on a CPU
HAS_FP16 = hasattr(torch.ops.aten, "_native_batch_norm_legit")  # torch 2
needs_native = pytest.mark.skipif(not reachable("cpu"), reason="this torch gives no way to its kernels")
DTYPES = [
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float32),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2, torch.float16: 4e-3}


@pytest.fixture
def layer():
    """A BatchNorm and an input that want gradients."""
    torch.manual_seed(0)
    return torch.nn.BatchNorm2d(4), torch.randn(2, 4, 5, 5, requires_grad=True)


def patch_of(engine="gemm"):
    """Return a patch that keeps nothing on disk."""
    return NormPatch(CPU, NormPlanner(engine, remember=False))


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


def test_auto_takes_torchs_own_on_a_cpu(layer):
    with patched(CPU) as report:
        step(*layer)
    assert dict(report.engines()) == {NATIVE: 1}


# Contracts of what is saved for backward: either side of a pass may be torch's own.

LAYOUTS = {
    "nchw": lambda d: torch.randn(2, 4, 5, 6).to(d),
    "nhwc": lambda d: torch.randn(2, 4, 5, 6).to(d).contiguous(memory_format=torch.channels_last),
    "strided": lambda d: torch.randn(2, 4, 5, 12).to(d)[..., ::2],
    "permuted": lambda d: torch.randn(5, 2, 6, 4).to(d).permute(1, 3, 0, 2),
    "expanded": lambda d: torch.randn(1, 4, 5, 6).to(d).expand(3, 4, 5, 6),
    "ndhwc": lambda d: torch.randn(2, 4, 3, 5, 6).to(d).contiguous(memory_format=torch.channels_last_3d),
    "rows": lambda d: torch.randn(3, 4).to(d),
    "sequence": lambda d: torch.randn(3, 4, 7).to(d),
    "pixel": lambda d: torch.randn(3, 4, 1, 1).to(d),
}


@pytest.mark.parametrize("engine", ["gemm", pytest.param("aten", marks=needs_native)])
@pytest.mark.parametrize(("dtype", "parameters"), DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_and_backward_on_either_side_of_a_patch(engine, dtype, parameters, layout):
    """Values, data types, shapes and strides of everything the operators return, in training and in eval mode."""
    aten, patch = torch.ops.aten, patch_of(engine)
    torch.manual_seed(0)
    x = LAYOUTS[layout](dtype)

    def on(wanted):
        return installed(patch) if wanted else nullcontext()

    for training, given, tracked in itertools.product((True, False), ("wb", "", "w", "b"), (True, False)):
        if not training and not tracked:
            continue
        weight, bias = (torch.rand(4).to(parameters) if which in given else None for which in "wb")
        buffers = [torch.rand(4).to(parameters), torch.rand(4).to(parameters) + 0.5] if tracked else [None, None]

        def call(forward, backward, training=training, weight=weight, bias=bias, buffers=buffers):
            kept = [None if b is None else b.clone() for b in buffers]
            with on(forward):
                y, mean, invstd = aten.native_batch_norm(x, weight, bias, *kept, training, 0.1, 1e-5)
            grad = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
            mask = [True, weight is not None, bias is not None]
            with on(backward):
                grads = aten.native_batch_norm_backward(grad, x, weight, *kept, mean, invstd, training, 1e-5, mask)
            return [y, mean, invstd, *kept, *grads]

        if dtype == torch.float16 and not HAS_FP16:
            with pytest.raises(RuntimeError, match="not implemented for 'Half'"):
                call(False, False)
            pytest.skip("torch 1.13 has no BatchNorm of fp16 on a CPU")
        expected = call(False, False)
        for sides in ((True, True), (True, False), (False, True)):
            for ours, theirs in zip(call(*sides), expected, strict=True):
                assert (ours is None) == (theirs is None)
                if ours is not None:
                    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
                    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_graph_outlives_the_patch_and_precedes_it(layer):
    bn, x = layer
    expected = torch.autograd.grad(bn(x).square().sum(), [x, *bn.parameters()])
    with patched(CPU, "gemm"):
        inside = bn(x).square().sum()
    outside = bn(x).square().sum()
    torch.testing.assert_close(torch.autograd.grad(inside, [x, *bn.parameters()]), expected)
    with patched(CPU, "gemm"):
        torch.testing.assert_close(torch.autograd.grad(outside, [x, *bn.parameters()]), expected)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("momentum", [None, 0.1])
@pytest.mark.parametrize("tracked", [True, False])
def test_modules(affine, momentum, tracked):
    """Three steps, momentum None (the mean of all), no affine parameters, no tracking; then eval mode."""
    torch.manual_seed(0)
    stock = torch.nn.BatchNorm2d(5, affine=affine, momentum=momentum, track_running_stats=tracked)
    ours = copy.deepcopy(stock)
    for number in range(4):
        for module in (stock, ours):
            module.train(number < 3)
        x = torch.randn(3, 5, 4, 4)
        expected = stock(x)
        with sick_norm(), patched(CPU, "gemm"):
            torch.testing.assert_close(ours(x), expected)
        for mine, theirs in zip(ours.buffers(), stock.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_instance_norm_is_a_batch_norm_of_its_own():
    x = torch.randn(2, 3, 4, 4)
    expected = F.instance_norm(x)
    with sick_norm(), patched(CPU, "gemm") as report:
        torch.testing.assert_close(F.instance_norm(x), expected)
    assert [problem.shape for problem in report.served] == [(1, 6, 4, 4)]


@pytest.mark.parametrize("name", ["_native_batch_norm_legit", "_native_batch_norm_legit_no_training"])
def test_functional_variants(name):
    if not hasattr(torch.ops.aten, name):
        pytest.skip("this torch has no such operator")
    x, weight, mean, var = torch.randn(2, 3, 4, 4), torch.rand(3), torch.rand(3), torch.rand(3) + 0.5
    arguments = (x, weight, weight, mean, var, *((True,) if name.endswith("legit") else ()), 0.1, 1e-5)
    expected = getattr(torch.ops.aten, name)(*copy.deepcopy(arguments))
    with sick_norm(), patched(CPU, "gemm") as report:
        found = getattr(torch.ops.aten, name)(*copy.deepcopy(arguments))
    torch.testing.assert_close(found, expected)
    assert len(report.served) == 1


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_native_batch_norm_legit"), reason="this torch has no such operator")
def test_the_variant_without_buffers():
    x, weight = torch.randn(2, 3, 4, 4), torch.rand(3)
    call = torch.ops.aten._native_batch_norm_legit.no_stats
    expected = call(x, weight, None, True, 0.1, 1e-5)
    with sick_norm(), patched(CPU, "gemm"):
        torch.testing.assert_close(call(x, weight, None, True, 0.1, 1e-5), expected)


@pytest.mark.skipif(not dispatcher.HANDS_OUT, reason="left to torch, which hands out no kernels")
@pytest.mark.parametrize("engine", ["gemm", "aten"])
def test_the_variant_of_exported_programs(engine):
    x, weight, mean, var = torch.randn(2, 3, 4, 4), torch.rand(3), torch.rand(3), torch.rand(3) + 0.5
    aten, mask = torch.ops.aten, [True, True, True]

    def run():
        own = (mean.clone(), var.clone())
        y, *saved = aten._batch_norm_with_update(x, weight, weight, *own, 0.1, 1e-5)
        grads = aten.batch_norm_backward(y, x, weight, *own, *saved[:2], True, 1e-5, mask, saved[2])
        return [y, *saved, *own, *grads]

    expected = run()
    with sick_norm() if engine == "gemm" else nullcontext(), patched(CPU, engine) as report:
        found = run()
    torch.testing.assert_close(found, expected)
    assert [(served.forward_calls, served.backward_calls) for served in report.served.values()] == [(1, 1)]


# torch's own samples.


def gradients(call, tensors):
    """Return a call's value, and the gradients of its tensors for a gradient that is not constant."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    value = call(*leaves)
    value = value[0] if isinstance(value, tuple) else value
    weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaves)]


def calls_of(op, dtype):
    """Yield each of torch's samples as tensors that have gradients and a function of them."""
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        given = [sample.input, *sample.args]
        if "weight" in sample.kwargs or "bias" in sample.kwargs:
            names = [name for name in ("weight", "bias") if sample.kwargs.get(name) is not None]
        else:
            names = []
        places = [i for i, a in enumerate(given) if isinstance(a, torch.Tensor) and a.requires_grad]
        tensors = [given[i] for i in places] + [sample.kwargs[name] for name in names]

        def call(*leaves, given=given, places=places, names=names, sample=sample):
            own = [t.clone() if isinstance(t, torch.Tensor) else t for t in given]
            for place, leaf in zip(places, leaves, strict=False):
                own[place] = leaf
            named = dict(zip(names, leaves[len(places) :], strict=True))
            return op.op(*own, **{**sample.kwargs, **named})

        yield tensors, call


def test_torch_has_samples():
    assert "nn.functional.batch_norm" in {op.name for op in NORMALISATIONS}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("op", NORMALISATIONS, ids=lambda op: op.name)
def test_torchs_own_samples(op, dtype):
    """With torch's own kernels made to raise, except where there is nothing to compute."""
    if op.name == "_batch_norm_with_update" and not dispatcher.HANDS_OUT:
        pytest.skip("left to torch, which hands out no kernels")
    served = 0
    for tensors, call in calls_of(op, dtype):
        expected = gradients(call, tensors)
        empty = tensors[0].numel() == 0
        with nullcontext() if empty else sick_norm(), patched(CPU, "gemm") as report:
            found = gradients(call, tensors)
        served += len(report.served)
        torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype] * 10, atol=TOLERANCE[dtype] * 10)
    assert served > 2


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_double_backward(training, channels_last):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 3, 2, dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    leaves = [x.requires_grad_(), *(torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(2))]
    buffers = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64) + 0.5

    def call(x, weight, bias):
        return F.batch_norm(x, *(b.clone() for b in buffers), weight, bias, training)

    with sick_norm(), patched(CPU, "gemm"):
        assert torch.autograd.gradcheck(call, leaves)
        assert torch.autograd.gradgradcheck(call, leaves)


# Calls that are torch's own business.


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.batch_norm(torch.ones(2, 3, 4), torch.ones(2), torch.ones(2), training=True),
        lambda: F.batch_norm(torch.ones(1, 3, 1, 1), None, None, training=True),
        lambda: F.batch_norm(torch.ones(2, 3, 4), None, None, training=False),
        lambda: F.batch_norm(torch.ones(2, 3, 4, dtype=torch.long), None, None, training=True),
    ],
)
def test_wrong_calls_get_torchs_own_message(call):
    with pytest.raises((RuntimeError, ValueError)) as stock:
        call()
    with patched(CPU, "gemm") as report, pytest.raises((RuntimeError, ValueError)) as ours:
        call()
    assert str(ours.value) == str(stock.value)
    assert not report.served


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4)])
def test_a_call_without_elements_is_left_to_torch(shape):
    x = torch.zeros(shape, requires_grad=True)
    bn = torch.nn.BatchNorm2d(3)
    with patched(CPU, "gemm") as report:
        y = bn(x)
        y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert not report.served


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

    monkeypatch.setattr("yolo_rocm.norm.algorithms.pytorch.Torch.forward", interrupted)
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
