"""What tests of the seam of normalisations have in common."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from yolo_rocm.engines import dispatcher
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed

CPU = ("cpu",)
needs_native = pytest.mark.skipif(not dispatcher.HANDS_OUT, reason="this torch gives no way to its kernels")


def patch_of(engine="gemm", devices=CPU):
    """Return a patch that keeps nothing on disk."""
    return NormPatch(devices, NormPlanner(engine, remember=False))


@contextmanager
def patched(devices=CPU, engine="auto"):
    """Compute normalisations with an engine, and yield the report."""
    patch = patch_of(engine, devices)
    with installed(patch):
        yield patch.report
