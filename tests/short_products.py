"""A GEMM library that leaves rows of fp32 products unwritten beyond a limit, as on gfx1201, on a CPU."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from yolo_rocm.engines import dispatcher

# For a child process that probes the device: `python -c CHILD`, from the root of the repository.
CHILD = """
from tests.short_products import short_products
from yolo_rocm.diagnosis.probe_child import main
with short_products(2**19):
    main()
"""


@contextmanager
def short_products(most: int) -> Iterator[list[tuple[int, int]]]:
    """Multiply no more rows than `most` in fp32.

    Yields:
        Rows and columns of each product, filled as it happens.
    """
    sizes: list[tuple[int, int]] = []

    def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        sizes.append((left.shape[-2], right.shape[-1]))
        exact = torch.from_numpy(left.float().numpy() @ right.float().numpy())
        out = torch.zeros_like(exact, dtype=left.dtype) if out is None else out
        rows = slice(most if left.dtype == torch.float32 else None)
        out[..., rows, :] = exact[..., rows, :].to(left.dtype)
        return out

    def with_offset(offset, left, right, *, beta=1, alpha=1, out=None):
        assert (beta, alpha) == (1, 1)
        product = multiply(left, right)
        return product.add_(offset) if out is None else out.copy_(product.add_(offset))

    def added(into, left, right, *, beta=1, alpha=1):
        assert (beta, alpha) == (1, 1)
        return into.add_(multiply(left, right))

    functions = {
        **dict.fromkeys(("mm", "bmm"), multiply),
        **dict.fromkeys(("mm.out", "bmm.out"), lambda left, right, *, out: multiply(left, right, out)),
        **dict.fromkeys(("addmm", "addmm.out"), with_offset),
        "baddbmm_": added,
    }
    library = torch.library.Library("aten", "IMPL")
    options = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in functions.items():
            library.impl(name, function, "CPU", **options)
    try:
        yield sizes
    finally:
        dispatcher._destroy(library)
