"""Which anchors may answer for a target, and how good each of them is."""

from __future__ import annotations

import triton
import triton.language as tl

from .iou import at_least_0, complete_iou, corner

SIZES = ["anchors", "classes", "targets_of_image", "shortest"]
INSIDE = tl.constexpr(1e-9)  # farther than this from every side


@triton.jit(do_not_specialize=SIZES)
def candidates(
    scores, boxes, points,                             # tensors: class probabilities and boxes of anchors, their places
    labels, targets, real,                             # of each image: classes, boxes, and which are no padding
    metric, overlaps, inside,                          # results
    anchors, classes, targets_of_image,                # how many
    shortest,                                          # sides of a target count as no shorter than this
    BLOCK: tl.constexpr,                               # anchors of a program
):  # fmt: skip
    """Compute, for each target of each image and each anchor, whether it is a candidate and how good a one.

        inside   = whether the anchor lies inside of the target
        overlaps = complete IoU of the anchor's box and the target, 0 outside
        metric   = square root of the class's probability, times overlaps**6

    Grid: blocks of anchors, of one target after the other.
    """
    blocks = tl.cdiv(anchors, BLOCK)
    target = tl.program_id(0) // blocks
    a = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    there = a < anchors
    row = (target // targets_of_image).to(tl.int64) * anchors + a

    usable = tl.where(tl.load(real + target) != 0.0, anchors, 0)  # none of padding
    x1, y1 = tl.load(targets + target * 4), tl.load(targets + target * 4 + 1)
    x2, y2 = tl.load(targets + target * 4 + 2), tl.load(targets + target * 4 + 3)
    half_w, half_h = tl.maximum(x2 - x1, shortest) / 2.0, tl.maximum(y2 - y1, shortest) / 2.0
    cx, cy = (x1 + x2) / 2.0, (y1 + y2) / 2.0
    px = tl.load(points + a * 2, mask=there, other=0.0).to(tl.float32)
    py = tl.load(points + a * 2 + 1, mask=there, other=0.0).to(tl.float32)
    within = (a < usable) & (px - (cx - half_w) > INSIDE) & (cx + half_w - px > INSIDE)
    within = within & (py - (cy - half_h) > INSIDE) & (cy + half_h - py > INSIDE)

    u1, v1, u2, v2 = corner(boxes, row, within)
    found = tl.where(within, at_least_0(complete_iou(x1, y1, x2, y2, u1, v1, u2, v2)), 0.0)
    label = tl.load(labels + target).to(tl.int64)
    label = tl.where(label < 0, label + classes, label)  # as torch counts
    labelled = tl.where((label >= 0) & (label < classes), usable, 0)
    score = tl.load(scores + row * classes + label, mask=within & (a < labelled), other=0.0).to(tl.float32)
    square = found * found
    result = target.to(tl.int64) * anchors + a
    tl.store(inside + result, within.to(tl.uint8), mask=there)
    tl.store(metric + result, tl.sqrt(score) * (square * square * square), mask=there)
    tl.store(overlaps + result, found, mask=there)
