"""Matrix products, cut where a library would leave a long side of the result unwritten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from .device_state import STATE
from .hip.target import target_of

# Rows and columns of a result that one product may have. Other targets are not cut: the same products are right on
# gfx1030, gfx1103 and gfx1150 (rocm-libraries#5706).
#
# gfx12 has a grid of 65,536 in y, where rocBLAS and hipBLASLt place the rows of a row-major result; what is beyond is
# never computed, without an error (rocm-libraries#9184). Reported wrong on gfx1201: fp32 beyond 2^19 rows
# (legacy-rocm-build#6595, #6116), fp64 beyond 2^20 (rocm-libraries#8645). A tile of 8 rows gives 2^19; half of it is
# safe for one of 4, and still fills such a card many times over.
LONGEST_ON_GFX12: Final = 2**18
SHORTEST: Final = 2**16  # safe for tiles of a single row: what results are compared with is cut here, on every target

_here = threading.local()


def product(
    left: torch.Tensor,
    right: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    offset: torch.Tensor | None = None,
    add: bool = False,
) -> torch.Tensor:
    """Return `left @ right`: of two matrices, of two batches of them, or of what `torch.matmul` broadcasts.

    Args:
        left: The rows.
        right: The columns.
        out: Where the result goes; it may be a view.
        offset: Added to every row of a product of two matrices.
        add: Whether the product of two batches is added to what `out` holds.
    """
    rows, columns = left.shape[-2], right.shape[-1]
    most = None
    if max(rows, columns) > SHORTEST:
        most = SHORTEST if getattr(_here, "short", False) else longest(left.device)
    if most is None or max(rows, columns) <= most:
        return _whole(left, right, out, offset, add)
    if out is None:
        batches = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
        out = left.new_empty(*batches, rows, columns)
    for top in range(0, rows, most):
        for first in range(0, columns, most):
            part = slice(first, first + most)
            above = None if offset is None else offset[part]
            into = out[..., top : top + most, part]
            _whole(left[..., top : top + most, :], right[..., part], into, above, add)
    return out


@contextmanager
def cut_short() -> Iterator[None]:
    """Cut the products of this thread so short that no target is known to get them wrong."""
    _here.short = True
    try:
        yield
    finally:
        _here.short = False


@STATE.cached(64)
def longest(device: torch.device) -> int | None:
    """Return how many rows or columns the result of one product may have on a device; None for any number."""
    target = target_of(str(device)) if device.type == "cuda" else None
    return LONGEST_ON_GFX12 if target is not None and target.gfx.startswith("gfx12") else None


def _whole(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None, offset: torch.Tensor | None, add: bool
) -> torch.Tensor:
    if offset is not None:
        return torch.addmm(offset, left, right, out=out)
    if add:
        assert out is not None  # there is something to add to
        return out.baddbmm_(left, right)
    if left.dim() == right.dim() == 2:
        return torch.mm(left, right, out=out)
    # `torch.matmul` of a matrix with a batch stride of 0 copies it, and the other side too.
    return (torch.bmm if left.dim() == right.dim() == 3 else torch.matmul)(left, right, out=out)
