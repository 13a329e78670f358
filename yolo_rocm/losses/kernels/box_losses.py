"""The losses of predicted boxes, and their gradients.

Distances to the sides are distributions over bins; the loss of one is the cross entropy with the two bins next to the
target.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .iou import at_least_0, complete_iou, complete_iou_gradient, corner

SIZES = ["rows", "anchors", "classes"]
BELOW_LAST = tl.constexpr(0.01)  # a target stays this far below its last bin


@triton.jit
def weight_of(scores, row, mask, classes, BLOCK: tl.constexpr, CLASSES: tl.constexpr):
    """Return the sum of the target scores of anchors."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, classes, CLASSES):
        c = first + tl.arange(0, CLASSES)
        some = tl.load(
            scores + row[:, None] * classes + c[None, :], mask=mask[:, None] & (c < classes)[None, :], other=0.0
        )
        total += tl.sum(some.to(tl.float32), axis=1)
    return total


@triton.jit
def bins_of(target, BINS: tl.constexpr):
    """Return the bin below a distance, its share, and that of the next one."""
    target = tl.minimum(at_least_0(target), BINS - 1 - BELOW_LAST)
    below = tl.floor(target)
    share = below + 1.0 - target
    return below.to(tl.int32), share, 1.0 - share


@triton.jit
def side_of(number: tl.constexpr, px, py, u1, v1, u2, v2):
    """Return the distance of points to a side of boxes: left, top, right, bottom."""
    if number == 0:
        distance = px - u1
    elif number == 1:
        distance = py - v1
    elif number == 2:
        distance = u2 - px
    else:
        distance = v2 - py
    return distance


@triton.jit
def logits_of(dist, row, number, mask, BINS: tl.constexpr, BLOCK_BINS: tl.constexpr):
    """Return the bins of one side of anchors, minus the largest of each, and the logarithm of their exponentials' sum.

    What is no bin is minus infinity.
    """
    b = tl.arange(0, BLOCK_BINS)
    is_bin = (b < BINS)[None, :]
    places = (row * 4 + number)[:, None] * BINS + b[None, :]
    logits = tl.load(dist + places, mask=mask[:, None] & is_bin, other=0.0).to(tl.float32)
    logits = tl.where(is_bin, logits, -float("inf"))
    logits -= tl.max(logits, axis=1)[:, None]
    return logits, tl.log(tl.sum(tl.exp(logits), axis=1)), b, places, is_bin


@triton.jit(do_not_specialize=SIZES)
def box_losses(
    dist, boxes, points,                               # tensors: bins and boxes of anchors, their places
    targets, scores, chosen,                           # box, scores and choice of each anchor
    weights, partial,                                  # results: sums of scores; a sum of each loss for every program
    rows, anchors, classes,                            # anchors of all images; of one; classes
    BINS: tl.constexpr, BLOCK_BINS: tl.constexpr,      # of a distance; as a power of two
    BLOCK: tl.constexpr, CLASSES: tl.constexpr,        # anchors of a program; classes at a time
):  # fmt: skip
    """Add up the losses of chosen anchors, each by its target scores: 1 - complete IoU, and that of the distances.

    Grid: blocks of anchors.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.load(chosen + row, mask=row < rows, other=0) != 0
    of_iou = tl.zeros((BLOCK,), dtype=tl.float32)
    of_sides = tl.zeros((BLOCK,), dtype=tl.float32)
    weight = tl.zeros((BLOCK,), dtype=tl.float32)
    if tl.sum(mask.to(tl.int32), axis=0) > 0:
        weight = weight_of(scores, row, mask, classes, BLOCK, CLASSES)
        x1, y1, x2, y2 = corner(boxes, row, mask)
        u1, v1, u2, v2 = corner(targets, row, mask)
        of_iou = tl.where(mask, (1.0 - complete_iou(x1, y1, x2, y2, u1, v1, u2, v2)) * weight, 0.0)
        a = row % anchors
        px = tl.load(points + a * 2, mask=mask, other=0.0).to(tl.float32)
        py = tl.load(points + a * 2 + 1, mask=mask, other=0.0).to(tl.float32)
        for number in tl.static_range(4):
            below, share, rest = bins_of(side_of(number, px, py, u1, v1, u2, v2), BINS)
            logits, log_sum, b, _, _ = logits_of(dist, row, number, mask, BINS, BLOCK_BINS)
            first = tl.sum(tl.where(b[None, :] == below[:, None], logits, 0.0), axis=1) - log_sum
            second = tl.sum(tl.where(b[None, :] == below[:, None] + 1, logits, 0.0), axis=1) - log_sum
            of_sides -= first * share + second * rest
        of_sides = tl.where(mask, of_sides / 4.0 * weight, 0.0)
    tl.store(weights + row, weight, mask=row < rows)
    programs = tl.num_programs(0)
    tl.store(partial + tl.program_id(0), tl.sum(of_iou, axis=0))
    tl.store(partial + programs + tl.program_id(0), tl.sum(of_sides, axis=0))


@triton.jit(do_not_specialize=SIZES)
def box_gradients(
    grads,                                             # tensors: gradients by both sums
    dist, boxes, points, targets, chosen, weights,     # see above
    grad_dist, grad_boxes,                             # results
    rows, anchors,                                     # see above
    BINS: tl.constexpr, BLOCK_BINS: tl.constexpr,      # see above
    BLOCK: tl.constexpr,                               # see above
):  # fmt: skip
    """Compute the gradients of both sums by boxes and bins; they are 0 for anchors that were not chosen.

    Grid: blocks of anchors.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    mask = tl.load(chosen + row, mask=there, other=0) != 0
    by_iou, by_sides = tl.load(grads), tl.load(grads + 1)
    weight = tl.load(weights + row, mask=mask, other=0.0)
    x1, y1, x2, y2 = corner(boxes, row, mask)
    u1, v1, u2, v2 = corner(targets, row, mask)
    dx1, dy1, dx2, dy2 = complete_iou_gradient(x1, y1, x2, y2, u1, v1, u2, v2, -by_iou * weight)
    kind = grad_boxes.dtype.element_ty
    tl.store(grad_boxes + row * 4, tl.where(mask, dx1, 0.0).to(kind), mask=there)
    tl.store(grad_boxes + row * 4 + 1, tl.where(mask, dy1, 0.0).to(kind), mask=there)
    tl.store(grad_boxes + row * 4 + 2, tl.where(mask, dx2, 0.0).to(kind), mask=there)
    tl.store(grad_boxes + row * 4 + 3, tl.where(mask, dy2, 0.0).to(kind), mask=there)

    a = row % anchors
    px = tl.load(points + a * 2, mask=mask, other=0.0).to(tl.float32)
    py = tl.load(points + a * 2 + 1, mask=mask, other=0.0).to(tl.float32)
    by = (by_sides / 4.0 * weight)[:, None]
    for number in tl.static_range(4):
        below, share, rest = bins_of(side_of(number, px, py, u1, v1, u2, v2), BINS)
        logits, log_sum, b, places, is_bin = logits_of(dist, row, number, mask, BINS, BLOCK_BINS)
        wanted = tl.where(b[None, :] == below[:, None], share[:, None], 0.0)
        wanted += tl.where(b[None, :] == below[:, None] + 1, rest[:, None], 0.0)
        grad = (tl.exp(logits - log_sum[:, None]) - wanted) * by
        grad = tl.where(mask[:, None], grad, 0.0).to(grad_dist.dtype.element_ty)
        tl.store(grad_dist + places, grad, mask=there[:, None] & is_bin)
