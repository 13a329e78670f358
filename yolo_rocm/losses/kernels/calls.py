"""The launches of a loss's kernels as plain data: grid, arguments and constants.

The order of numbers and constants is that of the kernels' parameters, whose signatures say what each of them is. The
last tensor is the smallest result: a first launch is compared by it, unless it is very large.
"""

from __future__ import annotations

from typing import Final

from ...engines.triton.call import Call

CANDIDATES: Final = f"{__package__}.candidates"
BOX_LOSSES: Final = f"{__package__}.box_losses"
LOGITS: Final = f"{__package__}.logits"
# Anchors of a program, and classes that it adds up at a time. Of all anchors few are chosen: a program with few of them
# reads little for nothing.
_CANDIDATES, _ANCHORS, _CLASSES = 1024, 32, 32
_LOGITS: Final = 1024  # of a program
_WARPS: Final = 4


def candidates(images: int, targets_of_image: int, anchors: int, classes: int, shortest: float) -> Call:
    """Describe the candidates of all targets; tensors: those of the kernel, in its order."""
    grid = (images * targets_of_image * -(-anchors // _CANDIDATES), 1, 1)
    numbers = (anchors, classes, targets_of_image, float(shortest))
    return Call(CANDIDATES, "candidates", grid, numbers, {"BLOCK": _CANDIDATES}, _WARPS, 1)


def programs(rows: int) -> int:
    """Return how many programs go over anchors, each of which writes a sum of each loss."""
    return -(-rows // _ANCHORS)


def box_losses(rows: int, anchors: int, classes: int, bins: int) -> Call:
    """Describe the losses of chosen anchors; tensors: those of the kernel, in its order."""
    constants = {**_over_bins(bins), "CLASSES": _CLASSES}
    return Call(BOX_LOSSES, "box_losses", (programs(rows), 1, 1), (rows, anchors, classes), constants, _WARPS, 1)


def box_gradients(rows: int, anchors: int, bins: int) -> Call:
    """Describe their gradients; tensors: those of the kernel, in its order."""
    return Call(BOX_LOSSES, "box_gradients", (programs(rows), 1, 1), (rows, anchors), _over_bins(bins), _WARPS, 1)


def logit_losses(count: int) -> Call:
    """Describe the losses of logits; tensors: those of the kernel, in its order."""
    return Call(LOGITS, "logit_losses", (-(-count // _LOGITS), 1, 1), (count,), {"BLOCK": _LOGITS}, _WARPS, 1)


def logit_gradients(count: int, same: bool) -> Call:
    """Describe their gradients, with one gradient for all losses or one for each; tensors: those of the kernel."""
    constants = {"BLOCK": _LOGITS, "SAME": int(same)}
    return Call(LOGITS, "logit_gradients", (-(-count // _LOGITS), 1, 1), (count,), constants, _WARPS, 1)


def _over_bins(bins: int) -> dict[str, int]:
    return {"BINS": bins, "BLOCK_BINS": max(2, 1 << (bins - 1).bit_length()), "BLOCK": _ANCHORS}
