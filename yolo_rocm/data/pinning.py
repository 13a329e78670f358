"""Whether batches go through pinned memory: only where there is a GPU, it works, and it fits."""

from __future__ import annotations

import platform
from typing import Final

import torch

from ..utils.error_text import first_line
from . import resources

# Pinned pages cannot be swapped; beyond this share of the free memory they starve the rest of the system, and AMD's
# driver stalls when they run out (ComfyUI#14525).
SHARE: Final = 0.1
# Batches that are pinned at one time: two wait, one is being copied, one is being used.
IN_FLIGHT: Final = 4


def decide_pinning(asked: bool | str, caller: bool, batch_bytes: int) -> tuple[bool, str]:
    """Return whether to pin, and a line for the user where the answer is not what was wanted.

    Args:
        asked: True or False by the preset or the user, or `auto`.
        caller: What whoever builds the loader wanted; `auto` never pins where that is False.
        batch_bytes: Bytes of one batch; 0 if unknown.
    """
    if asked is False or (asked == "auto" and not caller):
        return False, ""
    if not torch.cuda.is_available():
        return False, ""
    if asked == "auto":
        if "microsoft" in platform.release().lower():
            return False, "memory is not pinned: WSL gives little of it"
        free = resources.ram_available(resources.ROOT)
        if free is not None and IN_FLIGHT * batch_bytes > SHARE * free:
            need, have = IN_FLIGHT * batch_bytes / 2**30, SHARE * free / 2**30
            return (
                False,
                f"memory is not pinned: {need:.1f} GB of batches, {have:.1f} GB may be (a tenth of what is free)",
            )
    problem = probe(batch_bytes or 1 << 20)
    return problem == "", problem


def probe(nbytes: int) -> str:
    """Try to pin one batch; return why it does not work, or nothing."""
    try:
        torch.empty(nbytes, dtype=torch.uint8).pin_memory()
    except RuntimeError as error:
        return f"memory is not pinned: {first_line(error)}"
    return ""
