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


# Exact names before prefixes, longer prefixes before shorter ones. Sources:
# HSA_*, ROCR_*: ROCR reads its flags in Runtime::Load, libhsakmt the override with the topology
#   (ROCm/rocm-systems, rocr-runtime/libhsakmt/src/topology.c).
# HIP_*, AMD_*, GPU_*, CUDA_VISIBLE_DEVICES: CLR takes all flags once, in amd::Runtime::init
#   (ROCm/clr, rocclr/utils/flags.cpp).
# MIOPEN_*: each variable is a static of the function that asks for it first (miopen/src/include/miopen/env.hpp).
# PYTORCH_*, TORCH_*: members of torch's context and allocators, set up while the libraries load (docs notes/hip.rst).
READ: Final[tuple[tuple[str, Moment], ...]] = (
    ("HIP_ENABLE_DEFERRED_LOADING", Moment.TORCH),
    ("CUDA_VISIBLE_DEVICES", Moment.RUNTIME),
    ("HSA_", Moment.RUNTIME),
    ("ROCR_", Moment.RUNTIME),
    ("HIP_", Moment.RUNTIME),
    ("AMD_", Moment.RUNTIME),
    ("GPU_", Moment.RUNTIME),
    ("MIOPEN_", Moment.MIOPEN),
    ("NCCL_", Moment.GROUP),
    ("RCCL_", Moment.GROUP),
    ("HIPBLAS", Moment.TORCH),
    ("ROCBLAS_", Moment.RUNTIME),
    ("PYTORCH_", Moment.TORCH),
    ("TORCH_", Moment.TORCH),
    ("OMP_", Moment.TORCH),
    ("KMP_", Moment.TORCH),
    ("LD_", Moment.PROCESS),
    ("PYTHON", Moment.PROCESS),
    ("MALLOC_", Moment.PROCESS),
)

# Variables of this package, for its users and for the processes it starts itself. The modules that read them say more.
OWN: Final[dict[str, str]] = {
    "YOLO_ROCM": "`0` turns the whole package off: convolutions, loaders, variables, checkpoints.",
    "YOLO_ROCM_PRESET": "The preset that `auto` means: a name, what a card is sold as, or a YAML file.",
    "YOLO_ROCM_CONFIG": "The folder above `presets/`, where presets of your own are looked for by name.",
    "YOLO_ROCM_CACHE": "The folder of measured choices, of what the doctor has learned, and of MIOpen's files by rank.",
    "YOLO_ROCM_ANY_ULTRALYTICS": "`1` goes on with an Ultralytics that lacks something training needs.",
}
INTERNAL: Final[dict[str, str]] = {
    "YOLO_ROCM_RUN": "The Python environment that a `yolo-rocm run` is for; processes of another one are left alone.",
    "YOLO_ROCM_CHILD": "The preset of a training, for the processes that Ultralytics starts for it.",
    "YOLO_ROCM_RESTARTED": "The variables for which a command has been started again, so that it is only once.",
}


def moment(name: str) -> Moment | None:
    """Return when a variable is read; None for one that nothing is known of."""
    return next((when for start, when in READ if name.startswith(start)), None)


def torch_is_imported() -> bool:
    """Return whether torch's libraries are loaded."""
    return "torch" in sys.modules


def runtime_started(root: Path = Path("/")) -> bool:
    """Return whether the GPU runtime has started in this process.

    `torch.cuda.is_initialized()` alone would miss `torch.cuda.is_available()`, which starts HIP and leaves torch
    uninitialised. On Linux the runtime keeps `/dev/kfd` open from its start on, under WSL `/dev/dxg`.

    Args:
        root: Top of the file system to read `proc` from; tests hand in a made tree.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
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
        return torch_is_imported()
    return when is Moment.RUNTIME and runtime_started()
