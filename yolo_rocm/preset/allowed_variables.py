"""Which environment variables a preset may set: a file that came from somebody else must not be able to run code."""

from __future__ import annotations

import re
from typing import Final

# A preset is for numbers and switches of the GPU stack. What is not in one of these families is refused.
FAMILIES: Final = (
    *("HSA_", "HIP_", "ROCR_", "AMD_", "GPU_", "MIOPEN_", "ROCBLAS_", "HIPBLAS_", "HIPBLASLT_", "NCCL_", "RCCL_"),
    *("PYTORCH_", "TORCH_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "YOLO_"),
)
SINGLE: Final = ("CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")
# Inside the families, what names something to load, to run, to read or to write: HSA_TOOLS_LIB, OMP_TOOL_LIBRARIES,
# NCCL_NET_PLUGIN, TORCH_EXTENSIONS_DIR, MIOPEN_SYSTEM_DB_PATH, HIP_CLANG_PATH, AMD_LOG_LEVEL_FILE, HIP_COMPILER, and
# HSA_COREDUMP_PATTERN, which may be a program to pipe into.
_NAMES_A_FILE: Final = re.compile(
    r"(?:^|_)(?:LIBS?|LIBRARY|LIBRARIES|PLUGINS?|TOOLS?|EXTENSIONS?|\w*PATHS?|DIRS?|DIRECTORY|FOLDER|HOME|ROOT|"
    r"(?!PROFILE)[A-Z]*FILE|FILENAME|PATTERN|COMPILER|OPTIONS?|FLAGS|ARGS|CMD|COMMAND)(?:_|$)"
)
_REFUSED: Final = (
    "YOLO_ROCM",  # how this package finds its files, and tells its child processes what to do
    "AMD_COMGR_",  # the compiler of the runtime: its options, its logs
    "AMD_OCL_",
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",  # lets checkpoints run code
    "TORCH_LOGS",  # imports the modules it names
    "TORCH_TRACE",
    "TORCH_USE_RTLD_GLOBAL",
    "MALLOC_TRACE",
    "MALLOC_CONF",
)


def check(name: str) -> str:
    """Return the name of a variable that a preset may set.

    Raises:
        ValueError: It may not; the message says what is allowed, and what to do.
    """
    word = name.upper()  # Windows does not tell `Path` and `PATH` apart
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", word):
        reason = f"{name!r} is not the name of an environment variable"
    elif word not in SINGLE and not word.startswith(FAMILIES):
        reason = f"a preset may not set {name}"
    elif word.startswith(_REFUSED) or _NAMES_A_FILE.search(word):
        reason = f"a preset may not set {name}: it can name files to load or write, or programs to run"
    else:
        return name
    allowed = ", ".join((*(f"{family}*" for family in FAMILIES), *SINGLE))
    raise ValueError(
        f"{reason}. Allowed: {allowed}, unless they name files or programs. If you mean it, set it in the shell "
        "before you start Python"
    )
