"""The two memory layouts that results come in: channels_last, otherwise contiguous."""

from __future__ import annotations

import torch


def is_channels_last(x: torch.Tensor) -> bool:
    """Return whether a tensor is laid out channels_last and not merely ambiguous (one channel or one pixel)."""
    if x.dim() not in (4, 5) or x.is_contiguous():
        return False
    return x.is_contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def laid_out(x: torch.Tensor, channels_last: bool) -> torch.Tensor:
    """Return a tensor in the layout of a problem's results: channels_last or contiguous."""
    if not channels_last or x.dim() not in (4, 5):
        return x.contiguous()
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
