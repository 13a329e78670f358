"""Do the installed packages fit each other?"""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from .context import Patient, install_command
from .findings import Finding


def numpy_too_new(patient: Patient) -> Finding | None:
    """A torch built for NumPy 1 cannot take arrays of NumPy 2, so no image reaches it."""
    misfit = patient.machine.packages.numpy_misfit()
    if misfit is None:
        return None
    return Finding(
        "numpy-too-new",
        "error",
        f"{misfit.what}: the first image ends in `Numpy is not available`",
        misfit.remedy,
        ("https://github.com/pytorch/pytorch/issues/107302", "https://github.com/pytorch/pytorch/issues/132179"),
    )


def opencv_too_old(patient: Patient) -> Finding | None:
    """An OpenCV built for NumPy 1 cannot be imported beside NumPy 2, and Ultralytics imports it."""
    misfit = patient.machine.packages.opencv_misfit()
    if misfit is None:
        return None
    return Finding(
        "opencv-too-old",
        "error",
        misfit.what,
        misfit.remedy,
        ("https://github.com/opencv/opencv-python/issues/997", "https://github.com/opencv/opencv-python/issues/1149"),
    )


def torchvision_for_another_torch(patient: Patient) -> Finding | None:
    """Each torchvision is built for one torch; beside another its non-maximum suppression is missing."""
    wanted, torch = patient.machine.packages.torchvision_wants(), patient.machine.torch
    try:
        if wanted is None or torch is None or Version(wanted).release[:2] == Version(torch).release[:2]:
            return None
    except InvalidVersion:
        return None
    together = f'pip install -U torchvision "torch=={torch}"'
    return Finding(
        "torchvision-for-another-torch",
        "error",
        f"torchvision {patient.machine.packages.version('torchvision')} was built for torch {wanted}, "
        f"and torch {torch} is installed: validation would end in `operator torchvision::nms does not exist`",
        install_command(patient.gpu.gfx if patient.gpu else None) if patient.hip else together,
        ("https://github.com/pytorch/vision#installation", "https://github.com/pytorch/vision/issues/3058"),
    )


CHECKS = (numpy_too_new, opencv_too_old, torchvision_for_another_torch)
