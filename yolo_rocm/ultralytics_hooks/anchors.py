"""Anchor points of a loss, made once for each size of image instead of in every step.

They follow from the sizes of the feature maps and the strides alone. Ultralytics makes them anew for each batch, by
some fifty calls of torch, of which six or more wait for the device. Strides that somebody changes through `.data` are
not noticed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .probes import ANCHORS, missing

_MOST_REMEMBERED: Final = 32  # sizes; multi_scale has some twenty


@contextmanager
def anchors_once() -> Iterator[None]:
    """Let losses use the anchor points of earlier batches of the same size while the context is open."""
    if missing(ANCHORS):
        yield
        return
    with attribute("ultralytics.utils.loss", "make_anchors").on(_once, "anchors"):
        yield


def _once(original: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    from ..engines.torch_state import is_compiling, is_plain_eager

    made: dict[Any, tuple[Any, Any, list[int]]] = {}  # the strides, so that none others get their id

    def is_plain(feats: Any, strides: Any) -> bool:
        """Return whether this is a step of a training and nothing else: what is made may be used in a later one."""
        if is_compiling() or torch.is_inference_mode_enabled() or type(strides) is not torch.Tensor:
            return False
        return isinstance(feats, list) and bool(feats) and is_plain_eager(feats[0]) and not strides.is_inference()

    @functools.wraps(original)
    def make_anchors(feats: Any, strides: Any, grid_cell_offset: float = 0.5) -> Any:
        if not is_plain(feats, strides):
            return original(feats, strides, grid_cell_offset)
        sizes = [feat.shape[2:] for feat in feats]
        key = (id(strides), strides._version, *sizes, feats[0].dtype, feats[0].device, grid_cell_offset)
        _, anchors, versions = made.get(key, (None, (), []))
        if not anchors or versions != [each._version for each in anchors]:
            if len(made) >= _MOST_REMEMBERED:
                made.clear()
            anchors = original(feats, strides, grid_cell_offset)
            made[key] = strides, anchors, [each._version for each in anchors]
        return anchors

    return make_anchors
