"""Three layers, the ways to compute them, and a step of each."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.conv import seam as convolutions
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import Planner
from yolo_rocm.norm import seam as normalisations
from yolo_rocm.norm.fused import norm_act
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner


@contextmanager
def served(engine: str = "gemm", devices: tuple[str, ...] = ("cpu",)):
    patch = Patch(devices, Planner(engine, remember=False))
    norms = NormPatch(devices, NormPlanner(engine, remember=False))
    with convolutions.installed(patch), normalisations.installed(norms):
        yield patch, norms


def layers(dtype: torch.dtype = torch.float32, act: nn.Module | None = None, **options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, **{"kernel_size": 3, "bias": False, **options})
    norm = nn.BatchNorm2d(6, eps=1e-3, momentum=0.03)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return nn.Sequential(conv, norm, act or nn.SiLU()).to(dtype).train()


def sample(*shape: int, dtype: torch.dtype = torch.float32, layout=torch.contiguous_format) -> torch.Tensor:
    x = torch.randn(*(shape or (2, 4, 7, 8)), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x.to(dtype).contiguous(memory_format=layout)


def by_one(x: torch.Tensor, three: nn.Sequential) -> torch.Tensor:
    y = conv_norm_act(x, *three)
    assert y is not None
    assert y.grad_fn is None or "_Block" in type(y.grad_fn).__name__
    return y


def by_two(x: torch.Tensor, three: nn.Sequential) -> torch.Tensor:
    conv, norm, act = three
    y = norm_act(conv(x), norm, act)
    assert y is not None
    return y


def stepped(run, x: torch.Tensor, three: nn.Sequential, amp: bool = False) -> dict[str, torch.Tensor | None]:
    """Return all that a training step computes and changes."""
    three, x = copy.deepcopy(three), x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        y = run(x, three)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
    y.backward(grad)
    found = {"y": y.detach(), "x": x.grad, **{name: p.grad for name, p in three.named_parameters()}}
    return {**found, **{name: buffer.clone() for name, buffer in three.named_buffers()}}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name
        assert (found[name].dtype, found[name].stride()) == (value.dtype, value.stride()), name
