"""Kernels of the loss are used where they have proven themselves, and left out where they cannot."""

from __future__ import annotations

import logging

import pytest
import torch
from ultralytics.utils import loss as losses

from yolo_rocm.losses import boxes, proof
from yolo_rocm.ultralytics_hooks import train_steps
from yolo_rocm.ultralytics_hooks.fused_losses import fused_losses

from ..losses.cases import case
from .detector_losses import assert_same, detector, interpreted, known, step


@pytest.mark.deep
@known
@interpreted
def test_half_precision_has_to_prove_itself_too(launched):
    model = detector()
    expected = step(model, amp=True)
    with fused_losses():
        step(model)
        step(model, amp=True)
        assert len(proof._proven) == 6
        launched.clear()
        found = step(model, amp=True)
    assert launched == ["candidates", "box_losses", "box_gradients"]
    assert_same(found, expected, 3e-2)


@known
@interpreted
def test_without_targets_nothing_is_decided_but_for_logits(launched, caplog):
    model = detector()
    empty = train_steps.made_batch(model, 2, 64, torch.Generator())
    empty |= {"cls": empty["cls"][:0], "bboxes": empty["bboxes"][:0], "batch_idx": empty["batch_idx"][:0]}
    model.criterion = None
    with fused_losses():
        expected = float(train_steps.loss_of(model, empty).detach())
        assert {use.kernel for use in proof._proven} == {"logit_losses"}
        assert not caplog.text
        step(model)
        assert float(train_steps.loss_of(model, empty).detach()) == pytest.approx(expected, rel=1e-6)
    assert launched


@known
@interpreted
@pytest.mark.parametrize("kernel", ["candidates", "box_losses", "box_gradients"])
@pytest.mark.parametrize("failing", ["", "NaN", "hipErrorInvalidImage"])
def test_a_kernel_that_is_wrong_or_fails_is_not_used(monkeypatch, caplog, kernel, failing):
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
    with fused_losses(), caplog.at_level(logging.WARNING, logger="yolo_rocm"):
        for _ in range(3):
            assert_same(step(model), expected, 1e-5)
    named = "candidates" if kernel == "candidates" else "box_losses"
    said = [record.getMessage() for record in caplog.records if record.name == "yolo_rocm"]
    assert len(said) == 1
    assert f"kernel '{named}' is left out on cpu" in said[0]
    assert ("hipErrorInvalidImage" in said[0]) is (failing == "hipErrorInvalidImage")
    assert len(launched) == 1
    assert named not in {use.kernel for use in proof._proven}


@known
@interpreted
def test_a_wrong_choice_of_anchors_is_seen_although_the_loss_is_the_same(monkeypatch, caplog):
    model = detector()
    real = boxes._launch

    def wrong(name, sizes, tensors):
        real(name, sizes, tensors)
        if name == "candidates":
            tensors[-1].fill_(1)

    monkeypatch.setattr(boxes, "_launch", wrong)
    with fused_losses(), caplog.at_level(logging.WARNING, logger="yolo_rocm"):
        step(model)
    assert "kernel 'candidates' is left out" in caplog.text


@known
@interpreted
def test_without_memory_for_a_comparison_there_is_another_one(monkeypatch, caplog):
    model = detector()
    real, full = boxes._launch, [True]

    def launch(*args):
        if full:
            raise RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB")
        real(*args)

    monkeypatch.setattr(boxes, "_launch", launch)
    with fused_losses(), caplog.at_level(logging.WARNING, logger="yolo_rocm"):
        step(model)
        assert {use.kernel for use in proof._proven} <= {"logit_losses"}
        full.clear()
        step(model)
    assert {use.kernel for use in proof._proven} >= {"candidates", "box_losses"}
    assert not caplog.text


class Full(torch.Tensor):
    """A tensor that cannot be looked at."""

    def isfinite(self):
        """Ask for more memory than there is."""
        raise torch.cuda.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB")


def test_without_memory_to_look_at_what_is_right_nothing_is_decided():
    use = proof.Use(boxes.BOX_LOSSES, torch.device("cpu"), torch.float32, "of this test")
    right = torch.ones(2).as_subclass(Full)
    proof.prove(use, lambda: pytest.fail("there is nothing to compare with"), lambda: [right])
    assert use not in proof._proven
    assert proof._tries[use] == 1


@pytest.mark.parametrize("capturing", [False, True])
def test_while_a_graph_is_captured_nothing_is_tried(monkeypatch, capturing):
    """Nobody can look at results then, and to try ends the capture."""
    monkeypatch.setattr(proof, "device_reason", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    use = proof.Use(boxes.CANDIDATES, torch.device("cuda:0"), torch.float32, "of this test")
    assert proof.state(use) is (proof.State.NO if capturing else proof.State.UNPROVEN)
    monkeypatch.setattr(proof, "_proven", {use})
    assert proof.state(use) is proof.State.PROVEN


@known
@interpreted
def test_it_is_not_tried_for_ever(monkeypatch, launched):
    model = detector()
    monkeypatch.setattr(proof, "_MOST_TRIES", 2)
    monkeypatch.setattr(proof, "relative_error", lambda *pair: pytest.fail("there is nothing to compare"))
    made = case()
    assigned = made.assigned()
    rest = (*assigned[:2], assigned[1].sum(), torch.zeros_like(assigned[2]), torch.ones(2), made.strides)
    with fused_losses():
        for _ in range(4):
            losses.BboxLoss(16)(made.dist, made.boxes, made.points, *rest)
    assert launched == []
    assert max(proof._tries.values()) == 2
    assert model is detector()


@known
@interpreted
def test_many_boxes_in_half_precision_are_compared_fairly(launched):
    """Of a mean over thousands of boxes, gradients are so small that the original's have no digits left in fp16."""
    made = case(images=2, sharp=1.0)
    half = made._replace(dist=made.dist.half(), boxes=made.boxes.half())
    targets, scores, chosen = made.assigned()
    rest = (targets, scores, torch.tensor(6000.0), chosen, torch.ones(2), made.strides)
    with fused_losses():
        losses.BboxLoss(16)(half.dist, half.boxes, made.points, *rest)
    assert [use.dtype for use in proof._proven] == [torch.float16]
