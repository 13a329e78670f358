"""BatchNorm under torch.compile: results are laid out as torch promises, so that a compiler may leave it whole."""

from __future__ import annotations

import importlib
import itertools

import pytest
import torch
import torch.nn.functional as F

from .normalisations import patched

pytestmark = pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch < 2 has no torch.compile")
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))
SHAPES = {(2, 3, 5, 6): "channels_last", (2, 3, 4, 5, 6): "channels_last_3d", (4, 3): "", (2, 3, 1, 1): "channels_last"}


def laid_out(x, training):
    """Return the strides of a BatchNorm's result and of the gradient of its input; x may hold no values."""
    x = x.detach().requires_grad_()
    mean, var, weight, bias = (torch.ones(3, device=x.device) for _ in range(4))
    y = F.batch_norm(x, mean, var, weight, bias, training)
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    return [tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1) for t in (y, grad)]


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_results_are_laid_out_as_promised(device):
    fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
    for (shape, last), training, channels_last in itertools.product(SHAPES.items(), (True, False), (False, True)):
        x = torch.rand(shape, device=device)
        if channels_last and last:
            x = x.contiguous(memory_format=getattr(torch, last))
        with patched((device,), "gemm") as report:
            mode = fake_tensor.FakeTensorMode()
            with mode:
                promised = laid_out(mode.from_tensor(x), training)
            assert not report.served
            assert laid_out(x, training) == promised
            assert report.served
