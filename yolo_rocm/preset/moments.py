"""When each environment variable is read, and whether that moment has passed in this process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final


class Moment(Enum):
    """When a variable is read for the last time; its value says so in a message."""

    PROCESS = "when the process starts"
    TORCH = "when torch is imported"
    RUNTIME = "when the GPU runtime starts, at the first torch.cuda call"
    MIOPEN = "at the first convolution or BatchNorm that MIOpen computes"
    GROUP = "when several GPUs begin to work together"


# How names begin; of several that fit the longest counts. Sources:
# HSA_*, ROCR_*: ROCR reads its flags in Runtime::Load, libhsakmt the override with the topology
#   (ROCm/rocm-systems, rocr-runtime/libhsakmt/src/topology.c).
# HIP_*, AMD_*, GPU_*, CUDA_VISIBLE_DEVICES: CLR takes all flags once, in amd::Runtime::init
#   (ROCm/clr, rocclr/utils/flags.cpp).
# MIOPEN_*: each variable is a static of the function that asks for it first (miopen/src/include/miopen/env.hpp).
# PYTORCH_*, TORCH_*: members of torch's context and allocators, set up while the libraries load (docs notes/hip.rst).
READ: Final = {
    Moment.PROCESS: ("LD_", "PYTHON", "MALLOC_"),
    Moment.TORCH: ("HIP_ENABLE_DEFERRED_LOADING", "HIPBLAS", "PYTORCH_", "TORCH_", "OMP_", "KMP_"),
    Moment.RUNTIME: ("CUDA_VISIBLE_DEVICES", "HSA_", "ROCR_", "HIP_", "AMD_", "GPU_", "ROCBLAS_"),
    Moment.MIOPEN: ("MIOPEN_",),
    Moment.GROUP: ("NCCL_", "RCCL_"),
}


def moment(name: str) -> Moment | None:
    """Return when a variable is read; None for one that nothing is known of."""
    fitting = [(len(start), when) for when, starts in READ.items() for start in starts if name.startswith(start)]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def runtime_started(root: Path = Path("/")) -> bool:
    """Return whether the GPU runtime has started in this process.

    `torch.cuda.is_initialized()` alone would miss `torch.cuda.is_available()`, which starts HIP and leaves torch
    uninitialised. On Linux the runtime keeps `/dev/kfd` open from its start on, under WSL `/dev/dxg`.

    Args:
        root: Top of the file system to read `proc` from; tests hand in a made tree.
    """
    if vendor_may_have_run():
        return True
    open_files: set[str] = set()
    with suppress(OSError):
        for handle in (root / "proc/self/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                open_files.add(os.readlink(handle))
    return not open_files.isdisjoint(("/dev/kfd", "/dev/dxg"))


def vendor_may_have_run() -> bool:
    """Return whether MIOpen can have computed anything: torch must have set the device up for that."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def passed(when: Moment | None) -> bool:
    """Return whether a variable read at this moment certainly comes too late in this process."""
    if when is Moment.PROCESS:
        return True
    if when is Moment.TORCH:
        return "torch" in sys.modules
    return when is Moment.RUNTIME and runtime_started()
