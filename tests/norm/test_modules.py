"""BatchNorm modules as users call them, drawn at random, against fp64, with torch's own kernels made to raise."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from yolo_rocm.norm.seam import patched

from ..sick_vendor import MESSAGE, sick_norm

MODULES = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
# How a tensor of some shape lies in memory, made of a contiguous one.
LAYOUTS = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "reversed": lambda x: x.flip(-1).contiguous().flip(-1),
    "repeated": lambda x: x[:1].expand_as(x),
}
# Of the largest value: roundings of the data type. Without parameters a CPU saves statistics in it too.
ROOM = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 4e-2}


@st.composite
def calls(draw):
    """Draw a module, the data type of its input, and inputs of three steps: two of training, one of evaluation."""
    dims = draw(st.sampled_from([2, 3, 4, 4, 4, 5]))
    channels = draw(st.sampled_from([1, 3, 5, 7, 17]))
    sizes = [draw(st.integers(1, 6)) for _ in range(dims - 2)]
    dtype = draw(st.sampled_from(list(ROOM)))
    layout = draw(st.sampled_from(list(LAYOUTS)))
    module = MODULES[dims](
        channels,
        eps=draw(st.sampled_from([1e-5, 1e-3])),
        momentum=draw(st.sampled_from([None, 0.0, 0.03, 1.0])),
        affine=draw(st.booleans()),
        track_running_stats=draw(st.booleans()),
    ).to(torch.float64 if dtype == torch.float64 else torch.float32)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    for tensor in (module.weight, module.bias):
        if tensor is not None:
            nn.init.normal_(tensor)
    inputs = []
    for _ in range(3):
        images = draw(st.integers(1, 4))
        if images * torch.Size(sizes).numel() < 2 or (layout == "repeated" and torch.Size(sizes).numel() < 2):
            images, sizes = 2, [size + 1 for size in sizes] or sizes
        shape = (max(images, 2) if dims == 2 else images, channels, *sizes)
        inputs.append(torch.randn(shape, generator=generator, dtype=torch.float64) * 2 + 1)
    return module, dtype, layout if not (dims == 2 and layout == "repeated") else "contiguous", inputs


def stepped(module, inputs, layout) -> list[tuple[torch.Tensor, float]]:
    """Return results, gradients and buffers after each step, each with the size of what it is made of."""
    found = []
    for number, values in enumerate(inputs):
        leaf = values.detach().clone().requires_grad_()
        module.train(number < 2).zero_grad()
        x = LAYOUTS[layout](leaf)
        y = module(x)
        weights = LAYOUTS[layout](torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view(y.shape).to(y.dtype))
        y.backward(weights)
        # The gradient of the input is what is left of numbers of this size, after a mean was taken away and rounded.
        reduced = [0, *range(2, x.dim())]
        var, mean = torch.var_mean(x.detach().double(), reduced, unbiased=False)
        invstd = (var + module.eps).rsqrt()
        lost = float((1 + mean.abs() * invstd).max())
        weight = 1.0 if module.weight is None else max(1.0, float(module.weight.detach().abs().max()))
        found += [(y.detach(), lost), (leaf.grad, 2 * weight * lost * max(1.0, float(invstd.max())))]
        found += [(p.grad.clone(), 2.0 * lost * y.numel() ** 0.5) for p in module.parameters()]
        found += [(buffer.clone(), 1.0) for buffer in module.buffers()]
    return found


@settings(max_examples=40, deadline=None)
@given(call=calls())
def test_any_module_against_fp64(call):
    module, dtype, layout, inputs = call
    rounded = [x.to(dtype) for x in inputs]
    exact = stepped(copy.deepcopy(module).double(), [x.double() for x in rounded], layout)
    with sick_norm(), patched(("cpu",), "gemm") as report:
        found = stepped(module, rounded, layout)
    served = list(report.served.values())
    assert sum(entry.forward_calls for entry in served) == sum(entry.backward_calls for entry in served) == 3
    assert {entry.plan.engine for entry in served} == {"gemm"}
    for (ours, size), (theirs, _) in zip(found, exact, strict=True):
        assert ours.shape == theirs.shape
        error = float((ours.double() - theirs.double()).abs().max())
        assert error <= ROOM[dtype] * max(size, float(theirs.double().abs().max())), (error, size)


def test_the_guard():
    """Without ours the same modules die, so that the test above cannot pass by itself."""
    with sick_norm(), pytest.raises(RuntimeError, match=MESSAGE):
        stepped(nn.BatchNorm2d(3), [torch.randn(2, 3, 4, 4)], "contiguous")
