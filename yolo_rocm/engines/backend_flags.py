"""Flags of torch that are off while anybody needs them off, then as they were: above all the vendor library's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from ..utils.scoped_patch import ScopedPatch


def _flag(name: str) -> ScopedPatch | None:
    """Return a flag by the C functions that read and write it; None on a torch that does not have it."""
    read, write = (getattr(torch._C, f"_{verb}_{name}", None) for verb in ("get", "set"))
    return None if read is None or write is None else ScopedPatch(read, write)


# torch.backends.cudnn.enabled governs MIOpen too; its Python property is frozen inside torch's own test flags
# (torch.backends.disable_global_flags), the C functions are not.
_VENDOR: Final = {"cuda": _flag("cudnn_enabled"), "cpu": _flag("mkldnn_enabled")}
_FILLING: Final = _flag("deterministic_fill_uninitialized_memory")  # torch < 2.2 fills nothing


def _false(before: Any) -> bool:
    return False


def _off(flag: ScopedPatch | None) -> AbstractContextManager[None]:
    return nullcontext() if flag is None else flag.on(_false)


def new_memory_unfilled() -> AbstractContextManager[None]:
    """Let new memory be as it is found.

    Under deterministic algorithms, Ultralytics' default, torch fills every new tensor with NaN so that reading it too
    early shows. Our algorithms write all they allocate, and would pay for one more pass over each workspace.
    """
    return _off(_FILLING)


def vendor_off(device: str = "cuda") -> AbstractContextManager[None]:
    """Switch off the vendor library of a device type: MIOpen or cuDNN for `cuda`, oneDNN for `cpu`.

    Nested and concurrent use counts; the value found by the first user returns with the last one, also after an error.
    """
    return _off(_VENDOR.get(device.partition(":")[0]))
