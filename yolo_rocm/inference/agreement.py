"""Do two predictions agree? Objects are matched one to one by class and overlap; scores, masks and points count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .predictions import Found

AGREES: Final = 0.99  # share of objects that must be the same for a way to be chosen
OVERLAP: Final = 0.9  # IoU of boxes and of masks from which they are the same
_SCORE: Final = 0.05  # by which scores of the same object may differ
_POINT: Final = 0.05  # by which keypoints may differ, in widths of the object
_EDGE: Final = 0.02  # an object this close to the threshold may be found by one and not by the other


@dataclass(frozen=True)
class Agreement:
    """How far predictions are the same.

    Attributes:
        share: Of all objects, those that both have; 1 is all of them, NaN that there was nothing to compare.
        objects: How many the reference has.
        score: Largest difference between scores of the same object.
    """

    share: float
    objects: int
    score: float

    @property
    def agrees(self) -> bool:
        """Whether the predictions are the same for all that matters; never where there was nothing to compare."""
        return self.share >= AGREES


def agreement(reference: Sequence[Found], other: Sequence[Found], threshold: float) -> Agreement:
    """Compare what was found on the same images.

    Args:
        reference: By fp32 on the CPU.
        other: By what is judged.
        threshold: The score from which objects were reported.
    """
    if len(reference) != len(other):
        return Agreement(0.0, sum(_count(found) for found in reference), math.inf)
    same = counted = objects = 0
    score = 0.0
    for one, two in zip(reference, other, strict=True):
        pairs = _classified(one, two) if "probs" in one or "probs" in two else _matched(one, two)
        left = _unmatched(one, two, pairs, threshold)
        same += 2 * len(pairs)
        counted += 2 * len(pairs) + left
        objects += _count(one)
        score = max([score, *(difference for *_, difference in pairs)])
    return Agreement(same / counted if counted else math.nan, objects, score)


def _count(found: Found) -> int:
    return 1 if "probs" in found else len(found.get("scores", ()))


Pair = tuple[int, int, float]


def _classified(one: Found, two: Found) -> list[Pair]:
    """Return the one pair of an image's classes, if the likeliest class and its probability are the same."""
    a, b = one.get("probs"), two.get("probs")
    if a is None or b is None or a.shape != b.shape or not np.isfinite(b).all():
        return []
    difference = float(np.abs(a - b).max())
    best = int(a.argmax())
    # Two classes that are equally likely have no order.
    same = best == int(b.argmax()) or float(b.max() - b[best]) <= _EDGE
    return [(0, 0, difference)] if same and difference <= _SCORE else []


def _unmatched(one: Found, two: Found, pairs: list[Pair], threshold: float) -> int:
    """Return how many objects only one of both has, without those at the edge of the threshold."""
    if "probs" in one or "probs" in two:
        return 0 if pairs else 2
    left = 0
    for found, taken in ((one, {a for a, _, _ in pairs}), (two, {b for _, b, _ in pairs})):
        scores = found["scores"]
        left += sum(1 for i in range(len(scores)) if i not in taken and not scores[i] < threshold + _EDGE)
    return left


def _matched(one: Found, two: Found) -> list[Pair]:
    if not len(one["scores"]) or not len(two["scores"]):
        return []
    overlaps = _overlaps(one, two)
    overlaps[one["classes"][:, None] != two["classes"][None, :]] = 0.0
    overlaps[~np.isfinite(overlaps)] = 0.0
    pairs: list[Pair] = []
    free = np.ones(len(two["scores"]), dtype=bool)
    for a in np.argsort(-one["scores"], kind="stable"):
        candidates = np.where(free, overlaps[a], 0.0)
        b = int(candidates.argmax())
        if candidates[b] < OVERLAP:
            continue
        difference = abs(float(one["scores"][a]) - float(two["scores"][b]))
        if difference <= _SCORE and _same_mask(one, two, int(a), b) and _same_points(one, two, int(a), b):
            free[b] = False
            pairs.append((int(a), b, difference))
    return pairs


def _overlaps(one: Found, two: Found) -> NDArray[Any]:
    """Return the IoU of every box with every other."""
    if "corners" in one and "corners" in two:
        return _rotated_overlaps(one["corners"], two["corners"])
    a, b = one["boxes"][:, None].astype(np.float64), two["boxes"][None].astype(np.float64)
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None)
    both = sides.prod(-1)
    areas = [(box[..., 2:] - box[..., :2]).prod(-1) for box in (a, b)]
    return np.asarray(both / np.maximum(areas[0] + areas[1] - both, 1e-9))


def _rotated_overlaps(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    """Return the IoU of every rotated box with every other; OpenCV's finds no overlap between some that are equal."""
    result = np.zeros((len(one), len(two)))
    for i, a in enumerate(map(_counter_clockwise, one)):
        for j, b in enumerate(map(_counter_clockwise, two)):
            both = max(_area(_clipped(a, b)), 0.0)
            result[i, j] = both / max(_area(a) + _area(b) - both, 1e-9)
    return result


def _counter_clockwise(corners: NDArray[Any]) -> NDArray[Any]:
    corners = corners.astype(np.float64)
    return corners if _area(corners) >= 0 else corners[::-1]


def _area(corners: NDArray[Any]) -> float:
    """Return the area of a polygon; negative where its corners go clockwise."""
    x, y = (corners - corners[:1]).T if len(corners) > 2 else np.zeros((2, 1))
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def _clipped(subject: NDArray[Any], window: NDArray[Any]) -> NDArray[Any]:
    """Return what two convex polygons share: the first, cut along each side of the second (Sutherland and Hodgman)."""
    shape = subject
    for start, end in zip(window, np.roll(window, -1, axis=0), strict=True):
        side = end - start
        inside = side[0] * (shape[:, 1] - start[1]) - side[1] * (shape[:, 0] - start[0])
        corners = []
        for k in range(len(shape)):
            here, after = inside[k], inside[(k + 1) % len(shape)]
            if here >= 0:
                corners.append(shape[k])
            if here * after < 0:
                corners.append(shape[k] + (shape[(k + 1) % len(shape)] - shape[k]) * here / (here - after))
        shape = np.array(corners).reshape(-1, 2)
    return shape


def _same_mask(one: Found, two: Found, a: int, b: int) -> bool:
    if ("masks" in one) != ("masks" in two):
        return False
    if "masks" not in one:
        return True
    first, second = one["masks"][a], two["masks"][b]
    if first.shape != second.shape:
        return False
    either = np.count_nonzero(first | second)
    return bool(not either or np.count_nonzero(first & second) / either >= OVERLAP)


def _same_points(one: Found, two: Found, a: int, b: int) -> bool:
    if ("points" in one) != ("points" in two):
        return False
    if "points" not in one:
        return True
    box = one["boxes"][a]
    width = max(float(np.sqrt(max((box[2] - box[0]) * (box[3] - box[1]), 0.0))), 1.0)
    apart = np.linalg.norm(one["points"][a] - two["points"][b], axis=-1)
    return bool((apart <= _POINT * width).all())
