"""Kernels of the loss are used where they have proven themselves, and left out where they cannot."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.losses import boxes, proof
from yolo_rocm.ultralytics_hooks import train_steps
from yolo_rocm.ultralytics_hooks.fused_losses import fused_losses

from .detector_losses import assert_same, detector, interpreted, known, step


@known
@interpreted
def test_without_targets_nothing_is_decided_but_for_logits(launched, events):
    model = detector()
    empty = train_steps.made_batch(model, 1, 64, torch.Generator())
    empty |= {"cls": empty["cls"][:0], "bboxes": empty["bboxes"][:0], "batch_idx": empty["batch_idx"][:0]}
    model.criterion = None
    with fused_losses():
        expected = float(train_steps.loss_of(model, empty).detach())
        assert {use.kernel for use in proof._proven} == {"logit_losses"}
        assert events.ids == []
        step(model)
        assert float(train_steps.loss_of(model, empty).detach()) == pytest.approx(expected, rel=1e-6)
    assert launched


@known
@interpreted
@pytest.mark.parametrize(
    ("kernel", "failing"), [("candidates", ""), ("box_losses", "hipErrorInvalidImage"), ("box_gradients", "NaN")]
)
def test_a_kernel_that_is_wrong_or_fails_is_not_used(monkeypatch, events, kernel, failing):
    model = detector()
    expected = step(model)
    real, launched = boxes._launch, []

    def wrong(name, sizes, tensors):
        real(name, sizes, tensors)
        if name == kernel:
            launched.append(name)
            result = tensors[-2 if kernel == "candidates" else -1]
            if failing == "NaN":
                result.fill_(float("nan"))
            elif failing:
                raise RuntimeError(failing)
            else:
                result.mul_(1.02)

    monkeypatch.setattr(boxes, "_launch", wrong)
    with fused_losses():
        for _ in range(2):
            assert_same(step(model), expected, 1e-5)
    named = "candidates" if kernel == "candidates" else "box_losses"
    (line,) = events.of("kernel.quarantined")
    assert f"kernel '{named}' is left out on cpu" in line
    assert ("hipErrorInvalidImage" in line) is (failing == "hipErrorInvalidImage")
    assert len(launched) == 1
    assert named not in {use.kernel for use in proof._proven}


@known
@interpreted
def test_without_memory_for_a_comparison_there_is_another_one(monkeypatch, events):
    model = detector()
    real, full = boxes._launch, [True]

    def launch(*args):
        if full:
            raise RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB")
        real(*args)

    monkeypatch.setattr(boxes, "_launch", launch)
    with fused_losses():
        step(model)
        assert {use.kernel for use in proof._proven} <= {"logit_losses"}
        full.clear()
        step(model)
    assert {use.kernel for use in proof._proven} >= {"candidates", "box_losses"}
    assert events.ids == []


@pytest.mark.parametrize("capturing", [False, True])
def test_while_a_graph_is_captured_nothing_is_tried(monkeypatch, capturing):
    """Nobody can look at results then, and to try ends the capture."""
    monkeypatch.setattr(proof, "device_reason", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    use = proof.Use(boxes.CANDIDATES, torch.device("cuda:0"), torch.float32, "of this test")
    assert proof.state(use) is (proof.State.NO if capturing else proof.State.UNPROVEN)
    monkeypatch.setattr(proof, "_proven", {use})
    assert proof.state(use) is proof.State.PROVEN
