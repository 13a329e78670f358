"""What a detector's loss computes by kernels of ours: candidates for each target, and the losses of predicted boxes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .kernels import calls
from .launches import launch as _launch

CANDIDATES, BOX_LOSSES, BOX_GRADIENTS = "candidates", "box_losses", "box_gradients"


class Candidates(NamedTuple):
    """For each target of each image and each anchor.

    Attributes:
        inside: Whether the anchor lies inside of the target.
        metric: How good a candidate it is.
        overlaps: Complete IoU of its box and the target, 0 outside.
    """

    inside: torch.Tensor
    metric: torch.Tensor
    overlaps: torch.Tensor


def candidates(
    scores: torch.Tensor,
    boxes: torch.Tensor,
    points: torch.Tensor,
    labels: torch.Tensor,
    targets: torch.Tensor,
    real: torch.Tensor,
    shortest: float,
) -> Candidates:
    """Return the candidates of each target; the metric's exponents are 0.5 of a probability and 6 of an overlap.

    Args:
        scores: Class probabilities, images x anchors x classes.
        boxes: Predicted boxes, images x anchors x 4, in fp32.
        points: Places of anchors, anchors x 2.
        labels: Classes of targets, images x targets x 1.
        targets: Their boxes, images x targets x 4, in fp32.
        real: Which are no padding, images x targets x 1.
        shortest: Sides of targets count as no shorter than this.
    """
    images, anchors, classes = scores.shape
    shape = (images, targets.shape[1], anchors)
    inside = torch.empty(shape, dtype=torch.uint8, device=boxes.device)
    metric = torch.empty(shape, dtype=torch.float32, device=boxes.device)
    overlaps = torch.empty_like(metric)
    sizes = (images, shape[1], anchors, classes, float(shortest))
    given = (scores, boxes, points, labels, targets, real.to(torch.float32))
    tensors = (*(each.contiguous() for each in given), metric, overlaps, inside)
    _launch(CANDIDATES, sizes, tensors)
    return Candidates(inside.view(torch.bool), metric, overlaps)


def box_losses(
    dist: torch.Tensor,
    boxes: torch.Tensor,
    points: torch.Tensor,
    targets: torch.Tensor,
    scores: torch.Tensor,
    chosen: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two sums over chosen anchors, each by its target scores: of 1 - complete IoU, of its distances' losses.

    Args:
        dist: Bins of the distances to four sides, images x anchors x 4 bins.
        boxes: Predicted boxes, images x anchors x 4.
        points: Places of anchors, anchors x 2.
        targets: Boxes of the targets, images x anchors x 4.
        scores: Target scores, images x anchors x classes.
        chosen: Which anchors count, images x anchors.
    """
    return _BoxLosses.apply(dist, boxes, points, targets, scores, chosen)  # type: ignore[no-any-return, no-untyped-call]


class _BoxLosses(torch.autograd.Function):
    """Both sums, as a function of bins and boxes."""

    @staticmethod
    def forward(ctx: Any, dist: torch.Tensor, boxes: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        points, targets, scores, chosen = others
        read = [each.contiguous() for each in (dist, boxes, points, targets)]
        choice = chosen.contiguous().view(torch.uint8)
        rows, anchors, bins = chosen.numel(), dist.shape[1], dist.shape[2] // 4
        weights = torch.empty(rows, dtype=torch.float32, device=dist.device)
        partial = torch.empty((2, calls.programs(rows)), dtype=torch.float32, device=dist.device)
        sizes = (rows, anchors, scores.shape[2], bins)
        _launch(BOX_LOSSES, sizes, (*read, scores.contiguous(), choice, weights, partial))
        ctx.sizes = (rows, anchors, bins)
        ctx.save_for_backward(*read, choice, weights)  # in place of all scores
        return partial[0].sum(), partial[1].sum()  # of their own: they may be changed in place

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody wants to differentiate the gradients
            raise RuntimeError(
                "gradients of gradients are not computed by the kernels of the loss of boxes: "
                "train with a conv.engine that has no triton in it"
            )
        given = ctx.saved_tensors
        grad_dist, grad_boxes = torch.empty_like(given[0]), torch.empty_like(given[1])
        _launch(BOX_GRADIENTS, ctx.sizes, (torch.stack(grads), *given, grad_dist, grad_boxes))
        return grad_dist, grad_boxes, None, None, None, None
