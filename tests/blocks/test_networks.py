"""Whole networks: what they compute with blocks as one function, to the last bit, in full and in lean memory."""

from __future__ import annotations

import copy
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch

from yolo_rocm.norm import lean
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

from .steps import served

pytest.importorskip("ultralytics")
NETWORKS = ("yolov8n", "yolo11n")


@pytest.fixture(scope="module", params=NETWORKS)
def network(request) -> Any:
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    return DetectionModel(f"{request.param}.yaml", nc=3, verbose=False).train()


def tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    parts = output.values() if isinstance(output, dict) else output
    return [tensor for part in parts for tensor in tensors(part)]


def stepped(network: Any, *, amp: bool, on: bool, timed: bool) -> tuple[list[torch.Tensor], int]:
    """Return loss, gradients and statistics of a step, and how many blocks were computed as one."""
    network.zero_grad()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    counted: list[Any] = []
    with ExitStack() as stack:
        patch, norms = stack.enter_context(served())
        stack.enter_context(fused_blocks())
        stack.enter_context(lean.installed())
        if timed:  # which a convolution by itself is needed for
            patch.report.timer = _Ignored()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp), lean.on(0) if on else nullcontext():
            output = network.predict(images)
        found = tensors(output)
        loss: Any = sum((tensor.float() ** 2).sum() for tensor in found)
        counted = blocks_of(loss.grad_fn)
        loss.backward()
        assert {entry.backward_calls > 0 for entry in norms.report.served.values()} == {True}
    grads = [p.grad for p in network.parameters() if p.grad is not None]
    return [loss.detach(), *grads, *(buffer.clone() for buffer in network.buffers())], len(counted)


class _Ignored:
    def add(self, *_: Any) -> None:
        """Forget it."""


def blocks_of(node: Any) -> list[Any]:
    waiting, seen = [node], {node}
    while waiting:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return [each for each in seen if "_Block" in type(each).__name__]


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_a_step_has_the_same_bits(network, amp):
    wanted, none = stepped(network, amp=amp, on=False, timed=True)
    assert none == 0
    for on in (False, True):
        found, blocks = stepped(network, amp=amp, on=on, timed=False)
        assert blocks > 50
        assert len(found) == len(wanted) > 150
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_what_is_in_channels_last_stays_in_it(network):
    """Parts of the channels, attention, and weights that lie the same way in both layouts turn nothing into NCHW."""
    turned = copy.deepcopy(network).to(memory_format=torch.channels_last)
    images = torch.rand(2, 3, 64, 64).to(memory_format=torch.channels_last)
    with served() as (patch, norms), fused_blocks():
        sum(tensor.sum() for tensor in tensors(turned.predict(images))).backward()
    for seen in (patch.report.served, norms.report.served):
        assert len(seen) >= 10
        assert [str(problem) for problem in seen if not problem.channels_last] == []
