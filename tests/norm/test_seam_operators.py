"""Every operator of normalisation that the seam takes: torch's own contracts, values and messages."""

from __future__ import annotations

import copy
import itertools
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.engines import dispatcher
from yolo_rocm.norm import seam
from yolo_rocm.norm.base import Parameters
from yolo_rocm.norm.pytorch import Torch
from yolo_rocm.norm.seam import installed

from ..sick_vendor import sick_norm
from ..torch_samples import NORMALISATIONS
from .normalisations import CPU, needs_native, patch_of, patched

DTYPES = [
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float32),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2, torch.float16: 4e-3}


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


# Each layout in fp32 and each data type in NCHW; other pairs are deep.
KINDS = [
    pytest.param(layout, *dtypes, marks=[] if layout == "nchw" or dtypes == DTYPES[0] else [pytest.mark.deep])
    for layout in LAYOUTS
    for dtypes in DTYPES
]


@pytest.mark.parametrize("engine", ["gemm", pytest.param("aten", marks=needs_native)])
@pytest.mark.parametrize(("layout", "dtype", "parameters"), KINDS, ids=str)
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

        try:
            expected = call(False, False)
        except RuntimeError as error:
            if "not implemented for 'Half'" not in str(error):
                raise
            pytest.skip("older torch has no BatchNorm of fp16 on a CPU")
        for sides in ((True, True), (True, False), (False, True)):
            for ours, theirs in zip(call(*sides), expected, strict=True):
                assert (ours is None) == (theirs is None)
                if ours is not None:
                    assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
                    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


GAPS = {
    "every other": lambda tensor: torch.stack([tensor, tensor + 100], 1)[:, 0],
    "one for all": lambda tensor: tensor[:1].expand(4),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gaps", GAPS)
def test_parameters_with_gaps(gaps, training, monkeypatch):
    """Algorithms get them without, and what they update is put back; nothing else is written to."""
    seen = []
    for name in ("forward", "backward"):
        real = getattr(Torch, name)

        def dense(self, problem, *given, real=real):
            tensors = next(each for each in given if isinstance(each, Parameters))
            seen.append(real.__name__)
            assert all(each is None or not torch.is_tensor(each) or each.is_contiguous() for each in tensors)
            return real(self, problem, *given)

        monkeypatch.setattr(Torch, name, dense)
    x = torch.randn(2, 4, 5, 6)
    made = [GAPS[gaps](torch.rand(4)) for _ in range(2)]
    # Nobody may update one number that stands for four.
    tracked = [GAPS["every other" if training else gaps](torch.rand(4) + 0.5) for _ in range(2)]

    def step(given, running):
        weight, bias = (each.detach().requires_grad_() for each in given)
        leaf = x.clone().requires_grad_()
        y = F.batch_norm(leaf, *running, weight, bias, training, 0.1)
        (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
        return [y.detach(), leaf.grad, weight.grad, bias.grad, *(each.clone() for each in running)]

    around = [each.as_strided((each.stride(0) * 3 + 1,), (1,)).clone() for each in tracked]
    expected = step([each.clone() for each in made], [each.contiguous().clone() for each in tracked])
    with sick_norm(), installed(patch_of()):
        found = step(made, tracked)
    assert seen == ["forward", "backward"]
    for each, before in zip(tracked, around, strict=True):
        after = each.as_strided(before.shape, (1,))
        assert torch.equal(after[1::2], before[1::2])  # what lies between
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@needs_native
def test_one_number_that_stands_for_several_is_left_to_torch():
    """It cannot be updated; what torch makes of that is torch's own."""
    x, mean = torch.randn(2, 4, 5, 6), torch.zeros(1).expand(4)
    expected = F.batch_norm(x, mean, torch.ones(4), training=True)
    with patched(CPU, "gemm") as report:
        assert torch.equal(F.batch_norm(x, mean, torch.ones(4), training=True), expected)
    assert not report.served


VARIANTS = {
    "_native_batch_norm_legit": lambda x, w, mean, var: (x, w, w, mean, var, True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": lambda x, w, mean, var: (x, w, w, mean, var, 0.1, 1e-5),
    "_native_batch_norm_legit.no_stats": lambda x, w, mean, var: (x, w, None, True, 0.1, 1e-5),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_functional_variants(name):
    operator, _, overload = name.partition(".")
    if not hasattr(torch.ops.aten, operator):
        pytest.skip("this torch has no such operator")
    call = getattr(getattr(torch.ops.aten, operator), overload or "default")
    arguments = VARIANTS[name](torch.randn(2, 3, 4, 4), torch.rand(3), torch.rand(3), torch.rand(3) + 0.5)
    expected = call(*copy.deepcopy(arguments))
    with sick_norm(), patched(CPU, "gemm") as report:
        found = call(*copy.deepcopy(arguments))
    torch.testing.assert_close(found, expected)
    assert len(report.served) == 1


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


@pytest.mark.parametrize("op", NORMALISATIONS, ids=lambda op: op.name)
def test_torchs_own_samples(op):
    """With torch's own kernels made to raise, except where there is nothing to compute."""
    assert "nn.functional.batch_norm" in {op.name for op in NORMALISATIONS}
    if op.name == "_batch_norm_with_update" and not dispatcher.HANDS_OUT:
        pytest.skip("left to torch, which hands out no kernels")
    served = 0
    for tensors, call in calls_of(op, torch.float64):
        expected = gradients(call, tensors)
        empty = tensors[0].numel() == 0
        with nullcontext() if empty else sick_norm(), patched(CPU, "gemm") as report:
            found = gradients(call, tensors)
        served += len(report.served)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert served > 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.batch_norm(torch.ones(2, 3, 4), torch.ones(2), torch.ones(2), training=True),
        lambda: F.batch_norm(torch.ones(1, 3, 1, 1), None, None, training=True),
        lambda: F.batch_norm(torch.ones(2, 3, 4), None, None, training=False),
        pytest.param(
            lambda: F.batch_norm(torch.ones(2, 3, 4, dtype=torch.long), None, None, training=True), marks=needs_native
        ),
    ],
)
def test_wrong_calls_get_torchs_own_message(call):
    with pytest.raises((RuntimeError, ValueError)) as stock:
        call()
    with patched(CPU, "gemm") as report, pytest.raises((RuntimeError, ValueError)) as ours:
        call()
    assert str(ours.value) == str(stock.value)
    assert not report.served


def test_a_call_without_elements_is_left_to_torch():
    for shape in ((0, 3, 4, 4), (2, 3, 0, 4)):
        x, bn = torch.zeros(shape, requires_grad=True), torch.nn.BatchNorm2d(3)
        with patched(CPU, "gemm") as report:
            y = bn(x)
            y.sum().backward()
        assert y.shape == x.grad.shape == shape
        assert not report.served


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("ours", [True, pytest.param(False, marks=needs_native)], ids=["ours", "torch"])
def test_miopens_operators(ours, training):
    """What an AMD GPU calls, on a CPU: their kernels of the seam stand at its dispatch key, below torch's autograd."""
    torch.manual_seed(0)
    leaves = [t.requires_grad_() for t in (torch.randn(2, 3, 4, 4), torch.rand(3) + 0.5, torch.rand(3))]
    buffers = torch.rand(3), torch.rand(3) + 0.5

    def run(call):
        own = [b.clone() for b in buffers]
        y = call(leaves[0], own, *leaves[1:])
        return [y, *own, *torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum(), leaves)]

    expected = run(lambda x, own, w, b: F.batch_norm(x, *own, w, b, training, 0.1, 1e-5))
    kernels = {name: seam._kernels("CUDA")[name] for name in ("miopen_batch_norm", "miopen_batch_norm_backward")}
    library = dispatcher.put_in("CPU", kernels)
    try:
        with sick_norm() if ours else nullcontext(), patched(CPU, "gemm" if ours else "aten") as report:
            found = run(lambda x, own, w, b: torch.miopen_batch_norm(x, w, b, *own, training, 0.1, 1e-5)[0])
    finally:
        dispatcher.take_out(library, "CPU", kernels)
    torch.testing.assert_close(found, expected)
    assert [(served.forward_calls, served.backward_calls) for served in report.served.values()] == [(1, 1)]
