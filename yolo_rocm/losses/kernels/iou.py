"""The complete IoU of boxes (x1, y1, x2, y2) in fp32, and its gradient.

    iou = inter / union,  ciou = iou - (rho2 / c2 + alpha v)
    c2: squared diagonal of the box around both;  rho2: squared distance of their centres
    v = (4 / pi**2) (atan(w2 / h2) - atan(w1 / h1))**2,  alpha = v / (1 - iou + v + eps)

Where gradients are concerned, alpha is a constant.
"""

from __future__ import annotations

import triton
import triton.language as tl

EPS = tl.constexpr(1e-7)
BY_SQUARE = tl.constexpr(0.4052847345693511)  # 4 / pi**2
HALF_PI, QUARTER_PI = tl.constexpr(1.5707963267948966), tl.constexpr(0.7853981633974483)


@triton.jit
def arctan(x):
    """Return the arc tangent to 2 roundings, by a polynomial below tan(pi / 8); no library of a vendor is needed."""
    size = tl.abs(x)
    large, middle = size > 2.414213562373095, size > 0.4142135623730951
    near = tl.where(large, -1.0 / tl.where(large, size, 1.0), tl.where(middle, (size - 1.0) / (size + 1.0), size))
    start = tl.where(large, HALF_PI, tl.where(middle, QUARTER_PI, 0.0))
    z = near * near
    series = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    found = start + (series * z * near + near)
    return tl.where(x < 0.0, -found, found)


@triton.jit
def at_least_0(x):
    """Return x or 0; NaN stays."""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def overlap(a1, b1, a2, b2):
    """Return how far intervals overlap, negative where they do not."""
    return tl.minimum(a2, b2) - tl.maximum(a1, b1)


@triton.jit
def around(a1, b1, a2, b2):
    """Return the length of the interval around both."""
    return tl.maximum(a2, b2) - tl.minimum(a1, b1)


@triton.jit
def complete_iou(x1, y1, x2, y2, u1, v1, u2, v2):
    """Return the complete IoU of boxes (x1, y1, x2, y2) and (u1, v1, u2, v2)."""
    w1, h1 = x2 - x1, y2 - y1 + EPS
    w2, h2 = u2 - u1, v2 - v1 + EPS
    inter = at_least_0(overlap(x1, u1, x2, u2)) * at_least_0(overlap(y1, v1, y2, v2))
    iou = inter / (w1 * h1 + w2 * h2 - inter + EPS)
    cw, ch = around(x1, u1, x2, u2), around(y1, v1, y2, v2)
    sx, sy = u1 + u2 - x1 - x2, v1 + v2 - y1 - y2
    rho2 = (sx * sx + sy * sy) / 4.0
    angle = arctan(w2 / h2) - arctan(w1 / h1)
    v = BY_SQUARE * angle * angle
    alpha = v / (1.0 - iou + v + EPS)
    return iou - (rho2 / (cw * cw + ch * ch + EPS) + v * alpha)


@triton.jit
def lower(a, b):
    """Return the gradient of min(a, b) by a; both get half of it where they are equal."""
    return tl.where(a < b, 1.0, tl.where(a == b, 0.5, 0.0))


@triton.jit
def by_side(a1, b1, a2, b2, d_inter, d_around, d_centre, d_length):
    """Return the gradients by both ends of an interval (a1, a2).

    Given are those by its overlap with (b1, b2), by the interval around both, by the sum of all ends (those of the
    other count as positive), and by its length.
    """
    d1 = -d_inter * lower(b1, a1) - d_around * lower(a1, b1) - d_centre - d_length
    d2 = d_inter * lower(a2, b2) + d_around * lower(b2, a2) - d_centre + d_length
    return d1, d2


@triton.jit
def complete_iou_gradient(x1, y1, x2, y2, u1, v1, u2, v2, g):
    """Return the gradients by the first box, of g times the complete IoU."""
    w1, h1 = x2 - x1, y2 - y1 + EPS
    w2, h2 = u2 - u1, v2 - v1 + EPS
    wide, high = overlap(x1, u1, x2, u2), overlap(y1, v1, y2, v2)
    iw, ih = at_least_0(wide), at_least_0(high)
    inter = iw * ih
    union = w1 * h1 + w2 * h2 - inter + EPS
    iou = inter / union
    cw, ch = around(x1, u1, x2, u2), around(y1, v1, y2, v2)
    c2 = cw * cw + ch * ch + EPS
    sx, sy = u1 + u2 - x1 - x2, v1 + v2 - y1 - y2
    rho2 = (sx * sx + sy * sy) / 4.0
    ratio = w1 / h1
    angle = arctan(w2 / h2) - arctan(ratio)
    v = BY_SQUARE * angle * angle
    alpha = v / (1.0 - iou + v + EPS)

    d_union = -g * iou / union
    d_inter = g / union - d_union
    d_c2 = g * (rho2 / c2) / c2
    d_rho2 = -g / c2
    d_ratio = g * alpha * (2.0 * BY_SQUARE) * angle / (1.0 + ratio * ratio)
    dx1, dx2 = by_side(
        x1, u1, x2, u2, tl.where(wide < 0.0, 0.0, d_inter * ih), d_c2 * 2.0 * cw, d_rho2 * 0.5 * sx,
        d_union * h1 + d_ratio / h1,
    )  # fmt: skip
    dy1, dy2 = by_side(
        y1, v1, y2, v2, tl.where(high < 0.0, 0.0, d_inter * iw), d_c2 * 2.0 * ch, d_rho2 * 0.5 * sy,
        d_union * w1 - d_ratio * ratio / h1,
    )  # fmt: skip
    return dx1, dy1, dx2, dy2


@triton.jit
def corner(box, row, mask):
    """Return the four numbers of boxes in fp32."""
    start = box + row * 4
    x1, y1 = tl.load(start, mask=mask, other=0.0), tl.load(start + 1, mask=mask, other=0.0)
    x2, y2 = tl.load(start + 2, mask=mask, other=0.0), tl.load(start + 3, mask=mask, other=0.0)
    return x1.to(tl.float32), y1.to(tl.float32), x2.to(tl.float32), y2.to(tl.float32)
