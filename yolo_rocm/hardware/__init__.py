"""What this machine is, found without starting HIP and without importing torch."""

from __future__ import annotations

from .catalogue import AMD, INTEGRATED, NVIDIA, family_of, gfx_name, overridden_gfx, wave_of
from .gpus import HIDES_FIRST, HIDES_NEXT, OVERRIDE, Gpu
from .machine import Machine, detect
from .stack import package_version, rocblas_archs, torch_archs, torch_build, torch_folder
from .system import DeviceNode

__all__ = [
    "AMD",
    "HIDES_FIRST",
    "HIDES_NEXT",
    "INTEGRATED",
    "NVIDIA",
    "OVERRIDE",
    "DeviceNode",
    "Gpu",
    "Machine",
    "detect",
    "family_of",
    "gfx_name",
    "overridden_gfx",
    "package_version",
    "rocblas_archs",
    "torch_archs",
    "torch_build",
    "torch_folder",
    "wave_of",
]
