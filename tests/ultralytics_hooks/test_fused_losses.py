"""Losses of Ultralytics by kernels of ours: the same, and as they were where somebody wants something else."""

from __future__ import annotations

import functools

import pytest
import torch
from ultralytics.utils import loss as losses
from ultralytics.utils import tal

from yolo_rocm.bench.ways import ways
from yolo_rocm.losses import proof
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session
from yolo_rocm.ultralytics_hooks import probes, train_steps
from yolo_rocm.ultralytics_hooks.fused_losses import fused_losses

from ..losses.cases import case
from .detector_losses import assert_same, detector, interpreted, known, step

GET, FORWARD = tal.TaskAlignedAssigner.get_pos_mask, losses.BboxLoss.forward


@known
@interpreted
def test_losses_and_gradients_are_those_of_ultralytics(launched):
    model = detector()
    expected = step(model)
    with fused_losses():
        first, second = step(model), step(model)
        proven = list(launched)
        other = step(model, seed=1, images=2)
    # Compared in the first step, and used from it on: what a training computes does not depend on an earlier one.
    assert all(torch.equal(first[name], second[name]) for name in second)
    assert_same(second, expected)
    assert set(proven) == {"candidates", "box_losses", "box_gradients"}
    assert_same(other, step(model, seed=1, images=2))
    assert tal.TaskAlignedAssigner.get_pos_mask is GET
    assert losses.BboxLoss.forward is FORWARD


class Sharper(losses.BboxLoss):
    """A loss of a user's own."""


class Choosy(tal.TaskAlignedAssigner):
    """An assigner of a user's own."""


@known
@interpreted
def test_what_is_not_meant_is_left_alone(launched):
    made = case()
    assigned = made.assigned()
    total = assigned[1].sum()

    def box_loss(loss, bins=16, dtype=torch.float32, **others):
        dist, predicted = made.dist[..., : 4 * bins].to(dtype), made.boxes.to(dtype)
        rest = {"target_scores_sum": total, "fg_mask": assigned[2], **others}
        size = torch.tensor([64.0, 64.0])
        return loss(dist, predicted, made.points, *assigned[:2], imgsz=size, stride=made.strides, **rest)

    def assign(found, **changed):
        found.bs, found.n_max_boxes = made.targets.shape[:2]
        for name, value in changed.items():
            setattr(found, name, value)
        return found.get_pos_mask(*made.asked())

    with fused_losses():
        for _ in range(2):
            box_loss(Sharper(16))
            box_loss(losses.BboxLoss(16), target_scores_sum=float(total))
            box_loss(losses.BboxLoss(16), dtype=torch.float64)
            box_loss(losses.BboxLoss(1), bins=1)  # distances that are numbers
            assign(Choosy(10, 7, 0.5, 6.0))
            assign(made.assigner(), beta=4.0)
        with torch.autograd.forward_ad.dual_level():
            box_loss(losses.BboxLoss(16))
        assert launched == []
        box_loss(losses.BboxLoss(16))
        assign(made.assigner())
        assert launched == ["box_losses", "box_gradients", "box_losses", "candidates", "candidates"]


@known
@interpreted
def test_a_validation_that_comes_first_is_computed_as_before():
    """Its precision may be another than that of the training, and in inference mode nothing has a gradient."""
    model = detector()
    batch = train_steps.made_batch(model, 1, 64, torch.Generator().manual_seed(0))
    model.criterion = None
    with torch.inference_mode():
        expected = float(train_steps.loss_of(model, batch))
        with fused_losses():
            assert float(train_steps.loss_of(model, batch)) == pytest.approx(expected, rel=1e-6)
    assert {use.kernel for use in proof._proven} <= {"candidates"}
    model.criterion = None


@known
@pytest.mark.parametrize("place", ["utils.loss.bbox_iou", "utils.tal.bbox_iou"])
def test_who_changes_a_part_of_the_loss_gets_it(monkeypatch, place):
    """People try other IoUs: theirs must be what is trained with."""

    @functools.wraps(probes.found_at(f"ultralytics.{place}"))  # its words are those of the original
    def mine(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(f"ultralytics.{place}", mine)
    with fused_losses():
        assert tal.TaskAlignedAssigner.get_pos_mask is GET
        assert losses.BboxLoss.forward is FORWARD


@known
@interpreted
def test_also_who_does_so_in_the_middle_of_a_training(monkeypatch, launched):
    model, called = detector(), []
    real = losses.bbox_iou
    with fused_losses():
        step(model)
        launched.clear()
        monkeypatch.setattr(losses, "bbox_iou", lambda *args, **kwargs: called.append(1) or real(*args, **kwargs))
        step(model)
    assert called
    assert set(launched) == {"candidates"}  # which asks another one


@known
@interpreted
def test_an_assigner_with_a_function_of_its_own_keeps_it(launched):
    made = case()
    assigner = made.assigner()
    assigner.iou_calculation = lambda one, other: torch.ones(len(one))
    with fused_losses():
        assert float(assigner.get_pos_mask(*made.asked())[2].max()) == 1
    assert launched == []


@known
@interpreted
def test_candidates_and_targets_that_want_gradients_get_them(launched):
    """An assigner has them off; who asks for overlaps alone may not."""
    made = case()
    scores, predicted, *rest = made.asked()
    targets, weights, chosen = made.assigned()
    targets.requires_grad_()
    with fused_losses():
        for _ in range(2):
            given = (targets, weights, weights.sum(), chosen, torch.ones(2), made.strides)
            losses.BboxLoss(16)(made.dist, made.boxes, made.points, *given)[0].backward()
        assert targets.grad.abs().sum() > 0
        for _ in range(2):
            predicted = predicted.detach().requires_grad_()
            made.assigner().get_pos_mask(scores, predicted, *rest)[2].sum().backward()
            assert predicted.grad.abs().sum() > 0
        assert launched == []
        with torch.no_grad():
            made.assigner().get_pos_mask(scores, predicted, *rest)
        assert launched == ["candidates"] * 2  # compared, and used


@known
@pytest.mark.parametrize(("engine", "fused"), [("auto", True), ("gemm", False)])
def test_sessions_and_ways_with_triton_have_it(engine, fused):
    with pytest.raises(KeyboardInterrupt), Run(Session("cpu", {"conv": {"engine": engine}}), {}).applied():
        assert (losses.BboxLoss.forward is not FORWARD) is fused
        raise KeyboardInterrupt
    assert losses.BboxLoss.forward is FORWARD
    (way,) = ways(engine=engine, chosen="ours lean")
    with way.applied("cpu"):
        assert (losses.BboxLoss.forward is not FORWARD) is fused
    assert losses.BboxLoss.forward is FORWARD
