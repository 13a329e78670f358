"""What was found on images, and whether two predictions agree: objects are matched one to one by class and overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from ..errors import ConfigError

Objects = dict[str, Tensor]  # on one image: boxes, scores, classes, with masks, points or corners; or only probs

_OVERLAP: Final = 0.9  # IoU of boxes and of masks from which they are the same
_SCORE: Final = 0.05  # by which scores of the same object may differ
_POINT: Final = 0.05  # by which keypoints and corners may differ, in widths of the object
_EDGE: Final = 0.02  # an object this close to the threshold may be reported by one and not by the other


def objects_on(result: Any) -> Objects:
    """Return what one of Ultralytics' results holds.

    Raises:
        ConfigError: The task is one whose results cannot be compared.
    """
    if result.probs is not None:
        return {"probs": _on_cpu(result.probs.data)}
    found = result.boxes if result.obb is None else result.obb
    if found is None:
        raise ConfigError("predictions of this task cannot be compared; engine=torch predicts them.")
    objects = {"boxes": _on_cpu(found.xyxy), "scores": _on_cpu(found.conf), "classes": _on_cpu(found.cls)}
    if result.obb is not None:
        objects["corners"] = _on_cpu(result.obb.xyxyxyxy)
    if result.masks is not None:
        objects["masks"] = _on_cpu(result.masks.data) > 0.5
    if result.keypoints is not None and result.keypoints.xy is not None:
        objects["points"] = _on_cpu(result.keypoints.xy)
    return objects


def count(images: Sequence[Objects]) -> int:
    """Return how many objects there are on some images; the class of an image counts as one."""
    return sum(1 if "probs" in each else len(each["scores"]) for each in images)


def agreement(reference: Sequence[Objects], other: Sequence[Objects], threshold: float) -> tuple[float, float]:
    """Compare what was found on the same images.

    Args:
        reference: By fp32 on the CPU.
        other: By what is judged.
        threshold: The score from which objects were reported.

    Returns:
        The share of all objects that both have, NaN where there was nothing to compare; and the largest difference
        between scores of the same object.
    """
    same = alone = 0
    score = 0.0
    for one, two in zip(reference, other, strict=True):
        if "probs" in one:
            differences = _same_class(one["probs"], two["probs"])
            alone += 0 if differences else 2
        else:
            pairs = _pairs(one, two)
            differences = [float((one["scores"][a] - two["scores"][b]).abs()) for a, b in pairs]
            alone += _unmatched(one["scores"], {a for a, _ in pairs}, threshold)
            alone += _unmatched(two["scores"], {b for _, b in pairs}, threshold)
        same += 2 * len(differences)
        score = max([score, *differences])
    return (same / (same + alone) if same + alone else math.nan), score


def _same_class(one: Tensor, two: Tensor) -> list[float]:
    """Return the difference of probabilities, if both are for the same class of an image."""
    difference = float((one - two).abs().max())
    # Two classes that are equally likely have no order.
    same = float(two.max() - two[one.argmax()]) <= _EDGE
    return [difference] if same and difference <= _SCORE else []


def _unmatched(scores: Tensor, matched: set[int], threshold: float) -> int:
    """Return how many objects only one of both has, without those at the edge of the threshold."""
    return sum(1 for i, score in enumerate(scores.tolist()) if i not in matched and not score < threshold + _EDGE)


def _pairs(one: Objects, two: Objects) -> list[tuple[int, int]]:
    """Return which object of one is which of the other; those of high scores choose first."""
    overlaps = _overlaps(one["boxes"], two["boxes"])
    pairs: list[tuple[int, int]] = []
    for a in one["scores"].argsort(descending=True, stable=True).tolist() if len(two["scores"]) else ():
        b = int(overlaps[a].where(one["classes"][a] == two["classes"], torch.zeros(())).argmax())
        alike = one["classes"][a] == two["classes"][b] and overlaps[a, b] >= _OVERLAP
        if alike and (one["scores"][a] - two["scores"][b]).abs() <= _SCORE and _same_shape(one, two, a, b):
            overlaps[:, b] = 0.0
            pairs.append((a, b))
    return pairs


def _overlaps(one: Tensor, two: Tensor) -> Tensor:
    """Return the IoU of every box with every other; 0 where one is no number."""
    a, b = one[:, None].double(), two[None].double()
    both = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    area, other = ((box[..., 2:] - box[..., :2]).prod(-1) for box in (a, b))
    return (both / (area + other - both).clamp(min=1e-9)).nan_to_num(0.0).float()


def _same_shape(one: Objects, two: Objects, a: int, b: int) -> bool:
    """Return whether masks, keypoints and corners of two objects are the same, where there are any."""
    if one.keys() != two.keys():
        return False
    if "masks" in one:
        first, second = one["masks"][a], two["masks"][b]
        if first.shape != second.shape or int((first & second).sum()) < _OVERLAP * int((first | second).sum()):
            return False
    tolerance = _POINT * max(float((one["boxes"][a, 2:] - one["boxes"][a, :2]).clamp(min=0).prod().sqrt()), 1.0)
    if "points" in one and not ((one["points"][a] - two["points"][b]).norm(dim=-1) <= tolerance).all():
        return False
    if "corners" in one:  # in any order: rounding may let a rotated box begin at another one
        apart = (one["corners"][a][:, None] - two["corners"][b][None]).norm(dim=-1)
        return bool((apart.min(0).values <= tolerance).all())
    return True


def _on_cpu(value: Any) -> Tensor:
    return torch.as_tensor(value).detach().cpu().float()
