"""The triton engine in Triton's interpreter, behind the seam: a module that trains, and torch's own samples."""

from __future__ import annotations

import pytest
import torch

import yolo_rocm
from yolo_rocm.engines.triton.available import missing_reason

from ..interpreted import interpreter
from ..sick_vendor import sick_vendor
from ..torch_samples import CONVOLUTIONS
from .test_algorithms import assert_as_exact_as_native, gradients, sample_call

pytestmark = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


def tiny_model():
    """A downsampling layer, a depthwise, a 1x1 and an upsampling one, as in YOLO."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2, 1),
        torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.Conv2d(8, 20, 1),
        torch.nn.ConvTranspose2d(20, 6, 2, 2),
    )


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_a_module_trains_on_a_sick_vendor(channels_last):
    torch.manual_seed(0)
    model, x = tiny_model(), torch.randn(2, 3, 8, 10)

    def step(model, x):
        model.zero_grad()
        leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(leaf)
        y.square().mean().backward()
        return [y.detach(), leaf.grad, *(p.grad.clone() for p in model.parameters())]

    layout = torch.channels_last if channels_last else torch.contiguous_format
    doubles = tiny_model().double()
    doubles.load_state_dict(model.state_dict())
    exact = step(doubles, x.double())
    native = step(model, x)
    model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    with sick_vendor(), yolo_rocm.patched(("cpu",), "triton") as report:
        ours = step(model, x)
    assert set(report.engines()) == {"triton"}
    assert ours[0].is_contiguous(memory_format=layout)
    # Layer after layer: sums near zero of what the layers before have rounded differ by luck, 2.3 times on x86-64.
    assert_as_exact_as_native(ours, native, exact, times=4)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_torchs_own_samples(name):
    (op,) = (op for op in CONVOLUTIONS if op.name.endswith(f".{name}"))
    supported = 0
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
        if sample.input.dim() == 3:
            continue  # the one before it once more, without a batch: torch adds one before any engine sees it
        tensors, call = sample_call(op, sample)
        native = gradients(call, tensors)
        with sick_vendor(), yolo_rocm.patched(("cpu",), "triton"):
            ours = gradients(call, tensors)
        supported += 1
        assert_as_exact_as_native(ours, native, gradients(call, [t.double() for t in tensors]))
    assert supported >= 5
