"""Bytes that are kept for backward, each block of memory once."""

from __future__ import annotations

import torch

from yolo_rocm.norm import kept_bytes, lean

SIZE = 4 * 1000


def _vector() -> torch.Tensor:
    return torch.rand(1000, requires_grad=True)


def test_each_block_counts_once_and_parameters_do_not() -> None:
    x, weight = _vector(), _vector()
    with kept_bytes.counted([weight]) as kept:
        y = x * weight  # keeps both
        z = y.exp()  # keeps z
        (z[:500] * z[500:]).sum().backward()  # keeps two views of z
    assert kept.bytes == 2 * SIZE
    assert {tensor.data_ptr() for _, tensor in kept.storages.values()} == {x.data_ptr(), z.data_ptr()}
    assert x.grad is not None
    with kept_bytes.counted() as kept:
        with torch.no_grad():
            x.exp()
        x.neg()[:10].square()  # counts with all that it keeps alive
    x.exp()
    assert kept.bytes == SIZE


def test_lean_memory_may_be_inside_or_outside() -> None:
    x = _vector()
    with kept_bytes.counted() as outside, lean.on(0):
        x.exp()
    with lean.on(0), kept_bytes.counted() as inside:
        x.exp()
    assert outside.bytes == inside.bytes == SIZE
