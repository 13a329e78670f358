"""What was found on an image, as arrays that a file can hold and that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

Found = dict[str, NDArray[Any]]
_SEPARATOR: Final = "."


def found_on(result: Any) -> Found:
    """Return what a result holds: boxes, scores, classes, `corners` of rotated boxes, masks, points; or `probs`."""
    if result.probs is not None:
        return {"probs": _array(result.probs.data)}
    found: Found = {}
    if result.obb is not None:
        found = {"corners": _array(result.obb.xyxyxyxy), "boxes": _array(result.obb.xyxy)}
        source = result.obb
    elif result.boxes is None:
        raise ConfigError("predictions of this task cannot be compared; engine=torch predicts them.")
    else:
        source = result.boxes
        found = {"boxes": _array(source.xyxy)}
    found |= {"scores": _array(source.conf), "classes": _array(source.cls).astype(np.int64)}
    if result.masks is not None:
        found["masks"] = _array(result.masks.data) > 0.5
    if result.keypoints is not None and result.keypoints.xy is not None:
        found["points"] = _array(result.keypoints.xy)
    return found


def objects_in(found: Sequence[Found]) -> int:
    """Return how many objects were found on some images; one class counts as one."""
    return sum(1 if "probs" in each else len(each["scores"]) for each in found)


def save(path: Path, found: Sequence[Found]) -> None:
    """Write what was found on some images."""
    arrays = {f"{index}{_SEPARATOR}{name}": value for index, each in enumerate(found) for name, value in each.items()}
    np.savez(path, count=np.array(len(found)), **arrays)  # type: ignore[arg-type]


def load(path: Path) -> list[Found]:
    """Read what `save` has written."""
    with np.load(path, allow_pickle=False) as file:
        found: list[Found] = [{} for _ in range(int(file["count"]))]
        for key in file.files:
            index, _, name = key.partition(_SEPARATOR)
            if name:
                found[int(index)][name] = file[key]
    return found


def _array(value: Any) -> NDArray[Any]:
    value = value.detach().cpu().float().numpy() if hasattr(value, "detach") else np.asarray(value)
    return np.ascontiguousarray(value)
