"""Does the system let the card, the loaders and MIOpen's files work?"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from ..hardware import HIDES_FIRST, HIDES_NEXT
from ..hardware.files import text
from .context import Context
from .findings import Checks, Found

WSL_SOURCE: Final = "https://github.com/andweng/wsl-rocm"
_INTO_CONTAINER: Final = "--device=/dev/kfd --device=/dev/dri --group-add $(getent group render | cut -d: -f3)"
# What Ultralytics takes where neither preset nor user says (default.yaml; build.py: prefetch_factor 4 for training).
_WORKERS, _BATCH, _PREFETCH, _IMAGE = 8, 16, 4, 640

CHECKS: Final = Checks()


@CHECKS.check("error", "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html")
def gpu_hidden(context: Context) -> Found:
    """All cards are there, and a variable hides them."""
    hidden = next((gpu for gpu in context.amd if gpu.hidden_by), None)
    if hidden is None or not context.hip or context.machine.gpu is not None:
        return None
    return f"{hidden} is hidden by {hidden.hidden_by}", f"Unset {str(hidden.hidden_by).partition('=')[0]}"


@CHECKS.check(
    "error",
    "https://github.com/ROCm/legacy-rocm-build/issues/1798",
    "https://github.com/ROCm/legacy-rocm-build/issues/1214",
)
def no_compute_driver(context: Context) -> Found:
    """A card on the bus that KFD does not list."""
    idle = [gpu for gpu in context.amd if gpu.node is None and gpu.bus is not None]
    if context.machine.system != "linux" or context.gpu is not None or not idle or not context.hip:
        return None
    loaded = context.machine.amdgpu
    state = "the amdgpu driver is not loaded" if loaded is None else f"amdgpu {loaded} does not offer it for computing"
    return (
        f"{idle[0]} is on the PCI bus, but {state}",
        "sudo modprobe amdgpu, then read `sudo dmesg | grep -i kfd`; in a container add --device=/dev/kfd "
        "--device=/dev/dri",
    )


@CHECKS.check("error", "https://github.com/ROCm/vllm/pull/893")
def device_permissions(context: Context) -> Found:
    """ROCm opens /dev/kfd and the card's render node for reading and writing."""
    gpu, overlays = context.gpu, context.machine.overlays
    if gpu is None or context.machine.system != "linux" or "wsl" in overlays:
        return None
    in_container = f"docker run {_INTO_CONTAINER} ..." if "container" in overlays else ""
    nodes = {node.path: node for node in context.machine.devices}
    wanted = ["/dev/kfd", *([f"/dev/dri/{gpu.render}"] if gpu.render else [])]
    missing = [path for path in wanted if path not in nodes]
    if missing:
        return f"{', '.join(missing)} is not there", in_container or "sudo modprobe amdgpu"
    closed = [nodes[path] for path in wanted if not nodes[path].usable]
    if not closed:
        return None
    groups = ",".join(sorted({node.group for node in closed}))
    own = ", ".join(context.machine.groups) or "none"
    return (
        f"{closed[0].path} belongs to group {closed[0].group} and cannot be opened; groups here: {own}",
        in_container or f"sudo usermod -aG {groups} $USER, then log in again",
    )


@CHECKS.check(
    "warning", "https://github.com/ROCm/pytorch/issues/2241", "https://github.com/pytorch/pytorch/issues/119637"
)
def mixed_gpus(context: Context) -> Found:
    """An integrated GPU listed next to a card."""
    clashing, gpu = context.machine.clashing, context.gpu
    if gpu is None or not clashing or any(context.environ.get(name) for name in (HIDES_FIRST, *HIDES_NEXT)):
        return None
    setting = "set" if context.machine.system == "windows" else "export"
    return (
        f"torch lists {clashing[0]} next to {gpu}; trainings that touch both have crashed",
        f"In the shell, before Python starts: {setting} HIP_VISIBLE_DEVICES={context.machine.visible.index(gpu)}",
    )


@CHECKS.check("error", WSL_SOURCE)
def wsl_without_gpu(context: Context) -> Found:
    """Under WSL2 the GPU is behind /dev/dxg."""
    if not context.wsl or any(node.path == "/dev/dxg" for node in context.machine.devices):
        return None
    return (
        "/dev/dxg is not there: Windows does not pass a GPU to this WSL",
        "Install the newest AMD driver in Windows, then `wsl --update` and `wsl --shutdown`",
    )


@CHECKS.check("error", WSL_SOURCE)
def wsl_old_hsa(context: Context) -> Found:
    """Ubuntu's own HSA runtime is found before that of ROCm and knows nothing of /dev/dxg."""
    if not context.wsl or not any((context.machine.root / "var/lib/dpkg/info").glob("libhsa-runtime64-1*.list")):
        return None
    return (
        "Ubuntu's libhsa-runtime64-1 is installed and is found before the runtime of ROCm",
        "sudo apt remove libhsa-runtime64-1 libhsakmt1",
    )


@CHECKS.check("warning", "https://github.com/ROCm/rocm-libraries projects/miopen/src/db_path.cpp.in")
def home_on_network(context: Context) -> Found:
    """MIOpen leaves a home folder on NFS and keeps its databases in /tmp."""
    if not context.hip or context.machine.system != "linux" or context.environ.get("MIOPEN_USER_DB_PATH"):
        return None
    kind = _file_system(text(context.machine.root / "proc/mounts"), PurePosixPath(context.home.as_posix()))
    if not kind.startswith("nfs"):
        return None
    return (
        f"the home folder is on {kind}: MIOpen keeps its databases in /tmp instead, and a reboot loses them",
        "Set MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to folders on a local disk",
    )


def _file_system(mounts: str, path: PurePosixPath) -> str:
    """Return the type of the file system a path is on: that of the longest mount point above it, the last of equals."""
    lines = [words for words in map(str.split, mounts.splitlines()) if len(words) >= 3]
    points = [(PurePosixPath(words[1].replace("\\040", " ")), words[2]) for words in lines]
    above = [(len(point.parts), kind) for point, kind in points if point in (path, *path.parents)]
    return max(reversed(above), key=lambda entry: entry[0], default=(0, ""))[1]


@CHECKS.check("warning", "https://github.com/pytorch/pytorch/issues/5040")
def shm_small(context: Context) -> Found:
    """Workers hand batches over through /dev/shm."""
    size, loader, train = context.machine.shm_gb, context.preset.loader, context.preset.train
    workers = min(_WORKERS if loader.workers is None else loader.workers, context.machine.cores)
    batch, image = (_count(train.get(name), usual) for name, usual in (("batch", _BATCH), ("imgsz", _IMAGE)))
    need = workers * (loader.prefetch or _PREFETCH) * batch * 3 * image**2 / 2**30
    if context.machine.system != "linux" or size is None or size >= need:
        return None
    container = "container" in context.machine.overlays
    return (
        f"/dev/shm has {size * 1024:.0f} MB; {workers} workers can hold {need * 1024:.0f} MB "
        f"of batches ({batch} images of {image} px) and would end in a bus error",
        f"{'docker run --ipc=host ...' if container else 'sudo mount -o remount,size=8G /dev/shm'}, or fewer workers=",
    )


def _count(value: object, usual: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else usual
