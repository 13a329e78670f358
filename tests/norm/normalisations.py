"""What tests of the seam of normalisations have in common."""

from __future__ import annotations

import pytest

from yolo_rocm.norm.native import reachable
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner

CPU = ("cpu",)
needs_native = pytest.mark.skipif(not reachable("cpu"), reason="this torch gives no way to its kernels")


def patch_of(engine="gemm"):
    """Return a patch that keeps nothing on disk."""
    return NormPatch(CPU, NormPlanner(engine, remember=False))
