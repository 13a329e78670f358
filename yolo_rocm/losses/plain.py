"""Whether kernels of a loss can take the place of what torch would compute."""

from __future__ import annotations

from typing import Any

import torch

from ..engines.torch_state import is_compiling, is_plain_eager
from ..norm.recipes import others_keep


def is_plain(*tensors: Any) -> bool:
    """Return whether a call is nothing but a call, with tensors of one device that have their own values.

    Not under hooks for saved tensors: gradient checkpointing counts what is saved, and there is another number of it
    where a kernel proves itself.
    """
    first = tensors[0]
    if is_compiling() or not is_plain_eager(first) or others_keep():
        return False
    inference = torch.is_inference_mode_enabled()
    return all(
        type(each) is torch.Tensor
        and each.device == first.device
        and not each.is_neg()
        and (inference or not each.is_inference())  # those cannot be kept for backward
        for each in tensors
    )
