"""Whether Triton can be used on a device, why not, and the family of GPUs that a device belongs to.

Triton itself is not imported, and torch only where a device is queried: the doctor does without either.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

from ..device_state import STATE

# Families of GPUs, by what multiplies matrices: NVIDIA's tensor cores; on AMD plain fused multiply-adds (RDNA 1 and 2),
# WMMA (RDNA 3 and 4) or MFMA (CDNA).
NVIDIA, FMA, WMMA, MFMA = "nvidia", "fma", "wmma", "mfma"
FAMILIES: Final = (NVIDIA, FMA, WMMA, MFMA)
OLDEST_TRITON: Final = (3, 0)
OLDEST_TORCH: Final = (2, 0)
# By gfx target, as Triton's AMD backend knows them; what is missing cannot be compiled for.
_AMD_FAMILIES: Final = (
    (r"gfx10[13]\d", FMA),
    (r"gfx11\d\d", WMMA),
    (r"gfx12\d\d", WMMA),
    (r"gfx90a|gfx908|gfx94\d|gfx95\d", MFMA),
)
_OLDEST_NVIDIA: Final = (7, 0)
# Distributions that bring the module `triton`.
_DISTRIBUTIONS: Final = ("triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton", "triton-windows")


def interpreted() -> bool:
    """Return whether Triton runs kernels in Python, on a CPU, as tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@STATE.cached(1)
def triton_version() -> tuple[int, ...]:
    """Return Triton's version, empty where there is none."""
    return _numbers(installed_version())


def installed_version() -> str:
    """Return the version of the installed Triton as its package has it, empty where there is none."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


@STATE.cached(8)
def missing_reason(torch_version: str | None = None) -> str | None:
    """Say why this Python has no Triton that can be used, None where it has.

    Args:
        torch_version: The version of torch, for callers that must not import it; torch's own by default.
    """
    if torch_version is None:
        import torch

        torch_version = torch.__version__
    if _numbers(torch_version) < OLDEST_TORCH:
        return f"torch {torch_version} is older than {_dotted(OLDEST_TORCH)}, the first that has Triton"
    if find_spec("triton") is None or not triton_version():
        return "Triton is not installed"
    if triton_version() < OLDEST_TRITON:
        return f"Triton {_dotted(triton_version())} is older than {_dotted(OLDEST_TRITON)}"
    return None


def in_words(device: str) -> str:
    """Say whether Triton can be used on a device: its version, or the reason against it."""
    return device_reason(device) or f"available ({installed_version()})"


def in_words_unasked(torch_version: str | None) -> str:
    """Say what is known about Triton without importing torch and without querying a device."""
    if torch_version is None:
        return "torch is not installed"
    return missing_reason(torch_version) or f"installed ({installed_version()}), the device was not queried"


def amd_family(gfx: str) -> str | None:
    """Return the family of a gfx target, None where Triton does not compile for it."""
    return next((family for pattern, family in _AMD_FAMILIES if re.fullmatch(pattern, gfx)), None)


@STATE.cached(64)
def device_reason(device: str) -> str | None:
    """Say why Triton cannot be used on a device, None where it can."""
    missing = missing_reason()
    if missing is not None:
        return missing
    if not device.startswith("cuda"):
        return None if interpreted() else f"Triton has no kernels for {device.partition(':')[0]}"
    import torch

    if not torch.cuda.is_available():
        return "there is no GPU"
    if torch.version.hip is None:
        capability = torch.cuda.get_device_capability(torch.device(device))
        return None if capability >= _OLDEST_NVIDIA else f"Triton does not compile for compute capability {capability}"
    gfx = gfx_target(device)
    return None if amd_family(gfx) else f"Triton does not compile for {gfx}"


@STATE.cached(64)
def gfx_target(device: str) -> str:
    """Return the gfx target that torch compiles for on a device; an override of it counts."""
    import torch

    name = getattr(torch.cuda.get_device_properties(torch.device(device)), "gcnArchName", "unknown")
    return str(name).partition(":")[0]


@STATE.cached(64)
def family(device: str) -> str:
    """Return the family of a device that Triton can be used on; the interpreter counts as FMA."""
    if not device.startswith("cuda"):
        return FMA
    import torch

    if torch.version.hip is None:
        return NVIDIA
    return amd_family(gfx_target(device)) or FMA


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
