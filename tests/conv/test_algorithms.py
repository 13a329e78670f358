"""Every algorithm behind the seam: torch's own samples, gradients of gradients, modules, and what autograd keeps."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.conv import native
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.problem import ConvProblem

from ..sick_vendor import sick_vendor
from ..tables import each_row
from ..torch_samples import CONVOLUTIONS

CPU = ("cpu",)


def gradients(function, tensors):
    """Call `function` and return its value and the gradients of its floating-point arguments."""
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
    value = function(*leaves)
    weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype, device=value.device).view(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaves)]


def relative_error(value, exact):
    """Distance from the fp64 result, relative to its size."""
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-300)) if exact.numel() else 0.0


def assert_as_exact_as_native(ours, native, exact, times=2):
    """At most twice the native kernel's own error, or the rounding of a few operations; NaN never passes."""
    for mine, theirs, true in zip(ours, native, exact, strict=True):
        assert mine.shape == true.shape
        assert relative_error(mine, true) <= max(times * relative_error(theirs, true), 4 * torch.finfo(mine.dtype).eps)


def sample_call(op, sample):
    """Return the tensors of one of torch's samples and a function of them."""
    tensors = [sample.input, *(a for a in sample.args if isinstance(a, torch.Tensor))]
    rest = sample.args[len(tensors) - 1 :]
    return tensors, lambda *leaves: op.op(*leaves, *rest, **sample.kwargs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("engine", ["gemm", "aten"])
@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: op.name)
def test_torchs_own_samples(op, engine, dtype):
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        tensors, call = sample_call(op, sample)
        native = gradients(call, tensors)
        with sick_vendor() if engine == "gemm" else nullcontext(), yolo_rocm.patched(CPU, engine):
            ours = gradients(call, tensors)
        assert_as_exact_as_native(ours, native, gradients(call, [t.double() for t in tensors]))


@pytest.mark.parametrize("op", CONVOLUTIONS, ids=lambda op: op.name)
def test_double_backward(op):
    sample = next(s for s in op.sample_inputs("cpu", torch.float64, requires_grad=True) if s.input.numel())
    tensors, call = sample_call(op, sample)
    leaves = [t.detach().requires_grad_() for t in tensors]
    with sick_vendor(), yolo_rocm.patched(CPU, "gemm"):
        assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


def test_the_gradient_of_the_input_of_every_small_geometry():
    """Strides and dilations that leave pixels of the input, or whole phases of them, out of sight of any output."""
    generator, geometries, wrong = torch.Generator().manual_seed(0), 0, []
    sizes = itertools.product(range(1, 5), (2, 3), range(2, 5), range(5), range(2, 5))
    for size, kernel, stride, padding, dilation in sizes:
        if size + 2 * padding < dilation * (kernel - 1) + 1:
            continue
        geometry = ((2, stride), (1, padding), (1, dilation))
        weight = torch.randn(2, 1, 2, kernel, generator=generator, dtype=torch.float64)
        x = torch.empty(1, 1, 3, size, dtype=torch.float64)
        problem = ConvProblem.of(x, weight, *geometry, False, (0, 0), 1)
        grad = torch.randn(problem.output_shape, generator=generator, dtype=torch.float64)
        right = torch.nn.grad.conv2d_input(x.shape, weight, grad, *geometry)
        geometries += 1
        if not torch.allclose(BY_NAME["columns"].grad_input(problem, grad, weight), right, atol=1e-12):
            wrong.append((size, kernel, *geometry))
    assert geometries > 200
    assert wrong == []


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("engine", ["aten", "vendor"])
def test_an_image_whose_batch_has_a_stride_that_says_nothing(engine, groups):
    """As an array in HWC has it: without oneDNN torch's gradient of a grouped weight is wrong."""
    torch.manual_seed(0)
    x = torch.randn(5, 4, 15).permute(2, 0, 1)[None]
    weight = torch.randn(3, 15 // groups, 3, 4).contiguous(memory_format=torch.channels_last)

    def call(x, weight):
        return F.conv2d(x, weight, None, (5, 1), (2, 6), groups=groups)

    exact = gradients(call, [x.contiguous().double(), weight.double()])
    with torch.backends.mkldnn.flags(enabled=False), yolo_rocm.patched(CPU, engine):
        leaves = [x.detach().requires_grad_(), weight.requires_grad_()]  # as they are: a copy has other strides
        value = call(*leaves)
        weights = torch.linspace(-1, 1, value.numel()).view(value.shape)
        ours = [value, *torch.autograd.grad((value * weights).sum(), leaves)]
    for one, other in zip(ours, exact, strict=True):
        assert relative_error(one.detach(), other) < 1e-5


@each_row("kernel, geometry", [(1, (2,)), (3, (1, 1)), (3, (2, 1, 1, 2)), (5, (3, 4, 2)), (3, (1, 1, 1, 4))])
def test_backward_keeps_no_columns(kernel, geometry):
    """Autograd holds the input, the weight and nothing larger."""
    groups = geometry[3] if len(geometry) == 4 else 1
    x, w = (
        torch.randn(2, 4, 16, 16, requires_grad=True),
        torch.randn(4, 4 // groups, kernel, kernel, requires_grad=True),
    )
    kept: list[torch.Tensor] = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with yolo_rocm.patched(CPU, "gemm"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        F.conv2d(x.requires_grad_(), w.requires_grad_(), torch.randn(4), *geometry)
    assert {t.data_ptr() for t in kept} <= {x.data_ptr(), w.data_ptr()}
    assert sum(t.numel() for t in kept) == x.numel() + w.numel()


@pytest.mark.parametrize(("engine", "enabled"), [("vendor", True), ("aten", False)])
def test_the_vendor_library_is_off_in_both_passes_of_aten(monkeypatch, engine, enabled):
    seen = []
    for name in ("native_convolution", "native_convolution_backward"):
        call = getattr(native, name)
        noted = lambda *args, call=call: (seen.append(torch._C._get_mkldnn_enabled()), call(*args))[1]  # noqa: E731
        monkeypatch.setattr(native, name, noted)
    x, weight = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3, requires_grad=True)
    with yolo_rocm.patched(CPU, engine):
        F.conv2d(x, weight).sum().backward()
    assert set(seen) == {enabled}  # also where it is examined
