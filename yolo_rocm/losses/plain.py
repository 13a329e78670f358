"""Whether kernels of a loss can take the place of what torch would compute."""

from __future__ import annotations

from typing import Any

import torch

from ..norm.fusible import is_compiling, ordinary


def is_plain(*tensors: Any) -> bool:
    """Return whether a call is nothing but a call, with tensors of one device."""
    first = tensors[0]
    if is_compiling() or not ordinary(first):
        return False
    return all(type(each) is torch.Tensor and each.device == first.device for each in tensors)
