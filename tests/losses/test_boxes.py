"""Kernels of a loss against Ultralytics' own operations: in Triton's interpreter, and on a GPU."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.engines.measure import relative_error
from yolo_rocm.losses import boxes

from ..thinning import deep_but
from .cases import SHORTEST, case

CLOSE = 2e-6  # in fp32: roundings
HALF = {torch.float16: 2e-3, torch.bfloat16: 2e-2}
CASES = {
    "usual": {},
    "one class": {"classes": 1},
    "more classes than are added at a time": {"classes": 83},
    "bins that are no power of two": {"bins": 12},
    "few bins": {"bins": 2},
    "one image, one target": {"images": 1, "targets": 1},
    "many targets": {"targets": 23},
    "more anchors than a program has": {"images": 1, "size": 32},
}


@pytest.fixture(params=deep_but(CASES, "more classes than are added at a time", "bins that are no power of two"))
def made(request, device):
    return case(**CASES[request.param]).to(device)


@pytest.fixture
def one(device):
    return case(images=1, targets=2, classes=3, bins=4, size=4).to(device)


def candidates(made):
    scores, predicted, labels, targets, points, real = made.asked()
    return boxes.candidates(scores, predicted, points, labels, targets, real, SHORTEST)


def ours(made, dist, predicted, assigned):
    targets, scores, chosen = assigned
    found = boxes.box_losses(dist, predicted, made.points, targets, scores, chosen)
    return [each / scores.sum().clamp(min=1) for each in found]


def with_gradients(losses, dist, predicted, by=(7.5, 1.5)):
    """Return both losses, and the gradients of bins and boxes; the losses may be changed in place."""
    leaves = [each.detach().clone().requires_grad_() for each in (dist, predicted)]
    found = losses(*leaves)
    kept = [each.detach().clone() for each in found]
    for loss, each in zip(found, by, strict=True):
        loss *= each
    return [*kept, *torch.autograd.grad(found[0] + found[1], leaves)]


def compare(made, assigned, allowed=CLOSE):
    expected = with_gradients(lambda d, b: made.losses(d, b, assigned), made.dist, made.boxes)
    found = with_gradients(lambda d, b: ours(made, d, b, assigned), made.dist, made.boxes)
    assert [each.dtype for each in found[2:]] == [each.dtype for each in expected[2:]]
    errors = [relative_error(*pair) for pair in zip(found, expected, strict=True)]
    assert max(errors) < allowed, errors
    return found


def test_candidates_are_those_of_the_assigner(made):
    mask, metric, overlaps = made.assigner().get_pos_mask(*made.asked())
    found = candidates(made)
    assert found.inside.dtype == torch.bool
    assert found.metric.shape == metric.shape
    assert relative_error(found.metric, metric) < 10 * CLOSE  # a sixth power
    assert relative_error(found.overlaps, overlaps) < CLOSE
    inside = made.assigner().select_candidates_in_gts(made.points * made.strides, made.targets, made.real)
    assert torch.equal(found.inside, inside & made.real.bool())
    assert bool((found.overlaps[~found.inside] == 0).all())
    assert bool(mask.any())


def test_losses_and_their_gradients_are_those_of_the_original(made):
    assigned = made.assigned()
    _, _, grad_dist, grad_boxes = compare(made, assigned)
    targets, scores, chosen = assigned
    assert bool(chosen.any())
    assert not bool(grad_dist[~chosen].any())
    assert not bool(grad_boxes[~chosen].any())
    nothing = (targets, scores * 0, torch.zeros_like(chosen))
    found = with_gradients(lambda d, b: ours(made, d, b, nothing), made.dist, made.boxes)
    assert not any(bool(each.any()) for each in found)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision(device, dtype):
    """What predictions are rounded to, Ultralytics computes with in part: more is lost there than here."""
    made = case(images=1, sharp=1.0).to(device)
    made = made._replace(dist=made.dist.to(dtype), boxes=made.boxes.to(dtype), points=made.points.to(dtype))
    assigned = made.assigned()
    exact = made._replace(dist=made.dist.float(), boxes=made.boxes.float(), points=made.points.float())
    found = with_gradients(lambda d, b: ours(made, d, b, assigned), made.dist, made.boxes)
    expected = with_gradients(lambda d, b: exact.losses(d, b, assigned), exact.dist, exact.boxes)
    assert [each.dtype for each in found] == [torch.float32, torch.float32, dtype, dtype]
    assert max(relative_error(*pair) for pair in zip(found[:2], expected[:2], strict=True)) < CLOSE
    assert max(relative_error(*pair) for pair in zip(found[2:], expected[2:], strict=True)) < HALF[dtype]
    scored = made._replace(probabilities=made.probabilities.to(dtype))
    wide = scored._replace(probabilities=scored.probabilities.float())
    assert relative_error(candidates(scored).metric, candidates(wide).metric) == 0


def test_boxes_that_agree_miss_or_contain_each_other(device):
    """Where sides are equal both get half a gradient; where boxes miss each other only their distance has one."""
    made = case(images=1, targets=1).to(device)
    targets, scores, chosen = made.assigned()
    others = [(2, 3, 6, 7), (8, 9, 10, 11), (3, 4, 5, 6), (0, 1, 8, 9), (2, 3, 6, 3), (6, 3, 10, 7)]
    chosen = torch.zeros_like(chosen)
    chosen[:, : len(others)] = True
    made.boxes[0, : len(others)] = torch.tensor([2.0, 3.0, 6.0, 7.0], device=device)
    targets = targets.clone()
    targets[0, : len(others)] = torch.tensor(others, dtype=torch.float32, device=device)
    compare(made, (targets, torch.ones_like(scores) / scores.shape[2], chosen))


def test_what_is_laid_out_differently_is_read_right(one):
    targets, scores, chosen = one.assigned()

    def losses(dist, predicted):
        return boxes.box_losses(dist, predicted, one.points, targets, scores, chosen)

    expected = with_gradients(losses, one.dist, one.boxes)
    strided = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (one.dist, one.boxes, targets, scores))
    dist, predicted, targets, scores = strided
    assert not dist.is_contiguous()
    found = with_gradients(losses, dist, predicted)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    both = torch.cat([one.labels, one.targets], 2)
    split = one._replace(labels=both[..., :1], targets=both[..., 1:])
    assert all(torch.equal(*pair) for pair in zip(candidates(split), candidates(one), strict=True))


def test_what_is_kept_for_backward(device):
    """Not the scores: of many classes they are the largest tensor. A kept graph gives the same twice, and no more."""
    made, kept = case(images=1, classes=40).to(device), []
    leaves = [each.clone().requires_grad_() for each in (made.dist, made.boxes)]
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        total = sum(boxes.box_losses(*leaves, made.points, *made.assigned()))
    assert max(each.numel() for each in kept) == made.dist.numel()
    first = torch.autograd.grad(total, leaves, retain_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        torch.autograd.grad(total, leaves, create_graph=True)
    assert all(torch.equal(*pair) for pair in zip(first, torch.autograd.grad(total, leaves), strict=True))


def test_a_class_that_is_not_there_reads_nothing_else(one):
    """Negative ones count from the end, as in torch; for others there is no probability."""
    overlaps, last = candidates(one).overlaps, candidates(one._replace(labels=torch.full_like(one.labels, 2)))
    for label in (-1, 3):
        found = candidates(one._replace(labels=torch.full_like(one.labels, label)))
        assert torch.equal(found.overlaps, overlaps)
        assert torch.equal(found.metric, last.metric * (label == -1))
