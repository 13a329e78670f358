"""Do the installed packages fit each other?"""

from __future__ import annotations

from typing import Final

from packaging.version import InvalidVersion, Version

from ..hardware.libraries import missing_library
from .context import Context
from .findings import Checks, Found

CHECKS: Final = Checks()


@CHECKS.check(
    "error",
    "https://github.com/pytorch/pytorch/issues/107302",
    "https://github.com/pytorch/pytorch/issues/132179",
)
def numpy_too_new(context: Context) -> Found:
    """A torch built for NumPy 1 cannot take arrays of NumPy 2, so no image reaches it."""
    misfit = context.machine.packages.numpy_misfit()
    return misfit and (f"{misfit.what}: the first image ends in `Numpy is not available`", misfit.remedy)


@CHECKS.check(
    "error",
    "https://github.com/opencv/opencv-python/issues/997",
    "https://github.com/opencv/opencv-python/issues/1149",
)
def opencv_too_old(context: Context) -> Found:
    """An OpenCV built for NumPy 1 cannot be imported together with NumPy 2, and Ultralytics imports it."""
    return context.machine.packages.opencv_misfit()


@CHECKS.check("error", "https://github.com/opencv/opencv-python/issues/370")
def opencv_without_its_libraries(context: Context) -> Found:
    """OpenCV's package brings no libGL and no GLib; servers and containers have none, and Ultralytics imports it."""
    return missing_library(context.opencv_error)


@CHECKS.check(
    "error", "https://github.com/pytorch/vision#installation", "https://github.com/pytorch/vision/issues/3058"
)
def torchvision_for_another_torch(context: Context) -> Found:
    """Each torchvision is built for one torch; with another its non-maximum suppression is missing."""
    wanted, torch = context.machine.packages.torchvision_wants(), context.machine.torch
    try:
        if wanted is None or torch is None or Version(wanted).release[:2] == Version(torch).release[:2]:
            return None
    except InvalidVersion:
        return None
    together = f'pip install -U torchvision "torch=={torch}"'
    return (
        f"torchvision {context.machine.packages.version('torchvision')} was built for torch {wanted}, "
        f"and torch {torch} is installed: validation would end in `operator torchvision::nms does not exist`",
        context.install_command(context.gpu) if context.hip else together,
    )
