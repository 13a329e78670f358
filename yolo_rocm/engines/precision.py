"""TF32, through the two settings that torch has for it.

`allow_tf32` is the older one. Since torch 2.9 there is `fp32_precision` too, and a program that has set that one gets
an error when it reads the other. Kernels ask the newer one, where it exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def tf32_allowed() -> bool:
    """Return whether the user lets matrix products of fp32 be computed in TF32."""
    precision = _precision(torch.backends.cuda.matmul)
    return bool(torch.backends.cuda.matmul.allow_tf32) if precision is None else precision == "tf32"


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute fp32 in IEEE fp32, without TF32.

    TF32 is NVIDIA's; AMD GPUs have none, and with it one side of a comparison would compute something else.
    """
    cudnn: Any = torch.backends.cudnn
    parts = [getattr(cudnn, name) for name in ("conv", "rnn") if hasattr(cudnn, name)]
    before = _matmul_precision()
    with ExitStack() as undo:
        undo.callback(_set_matmul_precision, before)
        undo.enter_context(_off(torch.backends.cuda.matmul, [torch.backends.cuda.matmul]))
        undo.enter_context(_off(cudnn, parts))
        yield


@contextmanager
def _off(older: Any, newer: list[Any]) -> Iterator[None]:
    """Switch off TF32 of one library.

    Args:
        older: What has `allow_tf32`.
        newer: What has `fp32_precision`, on a torch that has it; the older setting is for all of them.
    """
    allowed = _allowed(older)
    precisions = [(part, precision) for part in newer if (precision := _precision(part)) is not None]
    try:
        if allowed is not None:  # so that it can still be read: torch's own compiler does
            older.allow_tf32 = False
        for part, _ in precisions:
            part.fp32_precision = "ieee"
        yield
    finally:
        if allowed is not None:
            older.allow_tf32 = allowed
        for part, precision in precisions:
            if not allowed:
                part.fp32_precision = "none"  # as before, where it followed a setting above it
            if part.fp32_precision != precision:
                part.fp32_precision = precision


def _allowed(library: Any) -> bool | None:
    """Return the older setting, None where torch refuses to return it because the newer one was set."""
    try:
        return bool(library.allow_tf32)
    except RuntimeError:
        return None


def _precision(part: Any) -> str | None:
    """Return the newer setting, None on a torch that does not have it."""
    try:
        return str(part.fp32_precision)
    except (AttributeError, AssertionError):  # torch 1.13 asserts
        return None


def _matmul_precision() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_matmul_precision(before: str | None) -> None:
    """Bring back a third way to say it, of which `allow_tf32` knows two values of three."""
    if before is not None and _matmul_precision() != before:
        torch.set_float32_matmul_precision(before)
