"""Every algorithm against the native kernels: values, gradients, layouts, dtypes, memory."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

import yolo_rocm
from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.problem import ConvProblem

from ..sick_vendor import sick_vendor
from ..tables import each_row
from ..torch_samples import CONVOLUTIONS

CPU = ("cpu",)
GEMM = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "gemm"]


def gradients(function, tensors):
    """Call `function` and return its value and the gradients of its floating-point arguments."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
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


def test_all_convolution_functions_of_torch_are_tested():
    names = {op.name.rpartition(".")[2] for op in CONVOLUTIONS}
    assert names >= {"conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}


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
    tensors = [sample.input, *(a for a in sample.args if isinstance(a, torch.Tensor))]
    rest = sample.args[len(tensors) - 1 :]
    leaves = [t.detach().requires_grad_() for t in tensors]
    with sick_vendor(), yolo_rocm.patched(CPU, "gemm"):
        assert torch.autograd.gradgradcheck(lambda *t: op.op(*t, *rest, **sample.kwargs), leaves, fast_mode=True)


GEOMETRIES = [
    {"kernel": 1},
    {"kernel": 1, "stride": 2},
    {"kernel": 3, "padding": 1},
    {"kernel": 3, "stride": 2, "padding": 1},
    {"kernel": 3, "dilation": 2, "padding": 2},
    {"kernel": 3, "padding": 1, "groups": 2},
    {"kernel": 3, "padding": 1, "groups": 4},
    {"kernel": 5, "stride": 3, "padding": 4, "dilation": 2},
    {"kernel": (1, 3), "padding": (0, 1)},
    {"kernel": 2, "stride": 2, "transposed": True},
    {"kernel": 3, "stride": 2, "padding": 1, "output_padding": 1, "transposed": True, "groups": 2},
    {"kernel": 3, "dilation": 2, "output_padding": 1, "transposed": True},
]


def geometry_call(kernel, channels=4, transposed=False, **kwargs):
    """Return a convolution function and a weight's shape."""
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    function = F.conv_transpose2d if transposed else F.conv2d
    return (lambda x, w, b: function(x, w, b, **kwargs)), (channels, channels // kwargs.get("groups", 1), *size)


@each_row("geometry", GEOMETRIES)
def test_values_gradients_and_layout(geometry):
    """Against fp64, in the layout of the input."""
    torch.manual_seed(0)
    call, shape = geometry_call(**geometry)
    tensors = [torch.randn(3, 4, 11, 13), torch.randn(shape), torch.randn(4)]
    for dtype, layout in ((torch.float32, torch.channels_last), (torch.float16, torch.contiguous_format)):
        given = [tensors[0].to(dtype, memory_format=layout), *(t.to(dtype) for t in tensors[1:])]
        exact = gradients(call, [t.double() for t in given])
        with sick_vendor(), yolo_rocm.patched(CPU, "gemm"):
            ours = gradients(call, given)
        assert {t.dtype for t in ours} == {dtype}
        assert_as_exact_as_native(ours, exact, exact)  # inputs are exact, so only our own rounding counts
        assert ours[0].is_contiguous(memory_format=layout)
        assert ours[1].is_contiguous(memory_format=layout)


def test_the_gradient_of_the_input_of_every_small_geometry():
    """Strides and dilations that leave pixels of the input, or whole phases of them, out of sight of any output."""
    (columns,) = (algorithm for algorithm in GEMM if algorithm.name == "columns")
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
        wanted = torch.nn.grad.conv2d_input(x.shape, weight, grad, *geometry)
        geometries += 1
        try:
            right = torch.allclose(columns.grad_input(problem, grad, weight), wanted, atol=1e-12)
        except RuntimeError:
            right = False
        if not right:
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
        leaves = [x.detach().requires_grad_(), weight.requires_grad_()]
        value = call(*leaves)
        weights = torch.linspace(-1, 1, value.numel()).view(value.shape)
        found = [value, *torch.autograd.grad((value * weights).sum(), leaves)]
    for one, other in zip(found, exact, strict=True):
        assert relative_error(one.detach(), other) < 1e-5


@each_row("padding, mode", [("same", "zeros"), (2, "reflect"), ("same", "replicate"), (2, "circular")])
def test_padding_modes_of_modules(padding, mode):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(3, 4, 4, padding=padding, padding_mode=mode, dilation=2).double()
    x = torch.randn(2, 3, 9, 10, dtype=torch.double)
    expected = gradients(conv, [x])
    with sick_vendor(), yolo_rocm.patched(CPU, "gemm"):
        ours = gradients(conv, [x])
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@each_row("geometry", GEOMETRIES)
def test_empty_batch(geometry):
    call, shape = geometry_call(**geometry)
    tensors = [torch.randn(0, 4, 8, 8), torch.randn(shape), torch.randn(4)]
    expected = gradients(call, tensors)
    # Left to torch, which gives an empty batch to no kernel and no library.
    with sick_vendor(composites=False), yolo_rocm.patched(CPU, "gemm"):
        ours = gradients(call, tensors)
    assert [t.shape for t in ours] == [t.shape for t in expected]
    assert not any(t.any() for t in ours[1:])


def test_non_contiguous_and_expanded_inputs():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 9, 18, dtype=torch.double)[:, ::2, :, ::2].transpose(2, 3)
    w = torch.randn(4, 1, 3, 3, dtype=torch.double).expand(4, 4, 3, 3)
    expected = F.conv2d(x, w, padding=1)
    with sick_vendor(), yolo_rocm.patched(CPU, "gemm"):
        torch.testing.assert_close(F.conv2d(x, w, padding=1), expected)


@each_row("geometry", GEOMETRIES)
def test_backward_keeps_no_columns(geometry):
    """Autograd holds the input, the weight and nothing larger."""
    call, shape = geometry_call(**geometry)
    x, w, b = torch.randn(2, 4, 16, 16, requires_grad=True), torch.randn(shape, requires_grad=True), torch.randn(4)
    kept: list[torch.Tensor] = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with yolo_rocm.patched(CPU, "gemm"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        call(x, w, b)
    assert {t.data_ptr() for t in kept} <= {x.data_ptr(), w.data_ptr()}
    assert sum(t.numel() for t in kept) == x.numel() + w.numel()


def test_every_reason_is_a_sentence_part_that_names_the_value():
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 2, 3, 3)
    problem = ConvProblem.of(x, w, [1, 1], [1, 1], [1, 1], False, [0, 0], 2)
    reasons = list(itertools.chain.from_iterable(a.not_supported_reasons(problem) for a in GEMM))
    assert "kernel (3, 3) is not 1x1" in reasons
    assert "groups is 2, not 1" in reasons
    assert "not transposed" in reasons
