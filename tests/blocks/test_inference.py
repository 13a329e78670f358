"""Blocks of a network that only computes: a weight is what it is at each pass, however it was changed."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from ultralytics.nn.modules.conv import Conv

import yolo_rocm
from yolo_rocm.conv.inference import InferencePatch, computing
from yolo_rocm.conv.plan import InferencePlanner
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.inference_blocks import inference_blocks

from ..interpreted import interpreter

pytestmark = pytest.mark.skipif(
    bool(probes.missing(probes.INFERENCE_BLOCKS)), reason="this Ultralytics has other blocks"
)


def elsewhere(weights):
    """Write as what torch does not know of does: the same memory by other tensors, whose versions are their own."""
    for weight in weights:
        torch.from_numpy(weight.detach().numpy()).mul_(-1.5)


def pruned(block):
    prune.l1_unstructured(block.conv, "weight", 0.5)
    prune.remove(block.conv, "weight")
    block.conv.weight.requires_grad_(False)


def loaded(block):
    block.load_state_dict(
        {name: -1.5 * value for name, value in block.state_dict().items() if "running" not in name}, False
    )


def assigned(weights):
    for weight in weights:
        for _ in range(2):  # the second may come to lie where the first did
            weight.data = weight.data * 1.5


CHANGES = {
    "write to .data": lambda block: [weight.data.mul_(-1.5) for weight in block.parameters()],
    "new .data": lambda block: assigned([*block.parameters()]),
    "load_state_dict": loaded,
    "pruning": pruned,
    "replay of a graph": lambda block: elsewhere([block.conv.weight]),
    "statistics": lambda block: block.bn.running_mean.data.add_(1.0),
}


def block():
    torch.manual_seed(0)
    made = Conv(8, 16, 3).eval().requires_grad_(False)
    made.bn.running_var.uniform_(0.5, 2)
    return made


def test_a_bias_before_the_norm_is_scaled_with_the_weight():
    module, x = block(), torch.randn(1, 8, 6, 6)
    module.conv.bias = nn.Parameter(torch.rand(16) + 1, requires_grad=False)
    patch = InferencePatch(("cpu",), InferencePlanner("gemm", remember=False))
    with torch.no_grad(), inference_blocks():
        with computing(patch):
            found = module(x)
        assert torch.allclose(found, module(x), atol=1e-4)
    assert patch.report.served


@pytest.mark.parametrize("engine", ["gemm", "triton"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_weight_that_changes_is_seen(how, engine):
    """Engine gemm computes with folded weights, triton with packed ones too."""
    if engine == "triton" and missing_reason() is not None:
        pytest.skip(str(missing_reason()))
    module, x = block(), torch.randn(1, 8, 6, 6)
    patch = InferencePatch(("cpu",), InferencePlanner(engine, remember=False))
    with interpreter() if engine == "triton" else nullcontext(), inference_blocks():
        found = []
        for _ in range(2):
            with torch.no_grad():
                with computing(patch):
                    found.append(module(x))
                assert torch.allclose(found[-1], module(x), atol=1e-4)
            CHANGES[how](module)
    assert not torch.allclose(*found, atol=1e-2)
    assert sum(served.forward_calls for served in patch.report.served.values()) == 2
    assert patch.report.engines() == {engine: 1}


def test_weights_that_are_trained_are_left_to_the_plans_of_training():
    """The block, and the convolution in it, which comes by the dispatcher."""
    module, x = block().requires_grad_(True), torch.randn(1, 8, 6, 6)
    patch = InferencePatch(("cpu",), InferencePlanner("gemm", remember=False))
    with yolo_rocm.patched(("cpu",), "gemm") as report, inference_blocks(), computing(patch), torch.no_grad():
        module(x)
        assert not patch.report.served
        assert sum(served.forward_calls for served in report.served.values()) == 1
        module.requires_grad_(False)(x)
        assert patch.report.served
