"""The two memory layouts that results come in: channels_last, otherwise contiguous."""

from __future__ import annotations

from functools import lru_cache

import torch


def is_channels_last(x: torch.Tensor) -> bool:
    """Return whether a tensor is laid out channels_last and not merely ambiguous (one channel or one pixel)."""
    if x.dim() not in (4, 5) or x.is_contiguous():
        return False
    return x.is_contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def suggests_channels_last(x: torch.Tensor) -> bool:
    """Return whether torch's kernels take a tensor for channels_last, as `suggest_memory_format` of C++ has it.

    Strides alone decide: some channels of a channels_last tensor are too, though not contiguous, and the weight of a
    1x1 or depthwise convolution is what it was last converted to, though its values lie the same way in both layouts.
    """
    if x.dim() not in (4, 5):
        return False
    sizes, strides = x.shape, x.stride()
    if strides[1] == 0:
        return False
    least = 0
    for dimension in (1, *range(x.dim() - 1, 1, -1), 0):
        size, stride = sizes[dimension], strides[dimension]
        # The last one: a single channel of single pixels, which torch takes for contiguous.
        if size == 0 or stride < least or (dimension == 0 and least == strides[1]):
            return False
        least = stride * max(size, 1)
    return True


def laid_out(x: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """Return a tensor in the layout of a problem's results: channels_last or contiguous.

    Where a size is 1, strides may be those of either layout while values lie the same way: they are those of this one,
    because strides are what the next convolution goes by, and what torch's compiler expects.
    """
    last = channels_last and x.dim() in (4, 5)
    if not last:
        x = x.contiguous()
    else:
        x = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    if 1 not in x.shape:
        return x
    usual = strides(x.shape, last)
    return x if x.stride() == usual else x.as_strided(x.shape, usual)


def usual_strides(x: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """Return a tensor without strides that a size of 1 leaves open; its values stay where they are.

    Args:
        x: The tensor; one that is in neither layout is left as it is.
        channels_last: Layout of those that are in both.
    """
    shape, own = x.shape, x.stride()
    for last in (channels_last, not channels_last) if 1 in shape else ():
        usual = strides(shape, last and x.dim() in (4, 5))
        if all(size == 1 or one == other for size, one, other in zip(shape, own, usual, strict=True)):
            return x if own == usual else x.as_strided(shape, usual)
    return x


@lru_cache(maxsize=4096)
def strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    """Return the strides of a whole tensor in one of the two layouts."""
    found, step = [0] * len(shape), 1
    dimensions = range(len(shape) - 1, -1, -1)
    for dimension in (1, *(d for d in dimensions if d != 1)) if channels_last else dimensions:
        found[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(found)
