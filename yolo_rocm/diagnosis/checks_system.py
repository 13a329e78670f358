"""Does the system let the card, the loaders and MIOpen's files work?"""

from __future__ import annotations

from pathlib import PurePosixPath

from ..hardware import HIDES_FIRST, HIDES_NEXT
from ..hardware.files import text
from .context import Patient
from .findings import Finding

GROUPS_SOURCE = "https://github.com/ROCm/vllm/pull/893"
WSL_SOURCE = "https://github.com/andweng/wsl-rocm"
# What Ultralytics takes where neither preset nor user says (default.yaml; build.py: prefetch_factor 4 for training).
_WORKERS, _BATCH, _PREFETCH, _IMAGE = 8, 16, 4, 640


def gpu_hidden(patient: Patient) -> Finding | None:
    """All cards are there, and a variable hides them."""
    hidden = [gpu for gpu in patient.amd if gpu.hidden_by]
    if not patient.hip or patient.machine.gpu is not None or not hidden:
        return None
    variable = str(hidden[0].hidden_by)
    return Finding(
        "gpu-hidden",
        "error",
        f"{hidden[0]} is hidden by {variable}",
        f"Unset {variable.partition('=')[0]}",
        ("https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html",),
    )


def no_compute_driver(patient: Patient) -> Finding | None:
    """A card on the bus that KFD does not list."""
    idle = [gpu for gpu in patient.amd if gpu.node is None and gpu.bus is not None]
    if patient.machine.system != "linux" or patient.gpu is not None or not idle or not patient.hip:
        return None
    loaded = patient.machine.amdgpu
    state = "the amdgpu driver is not loaded" if loaded is None else f"amdgpu {loaded} does not offer it for computing"
    return Finding(
        "no-compute-driver",
        "error",
        f"{idle[0]} is on the PCI bus, but {state}",
        "sudo modprobe amdgpu, then read `sudo dmesg | grep -i kfd`; in a container add --device=/dev/kfd "
        "--device=/dev/dri",
        (
            "https://github.com/ROCm/legacy-rocm-build/issues/1798",
            "https://github.com/ROCm/legacy-rocm-build/issues/1214",
        ),
    )


def device_permissions(patient: Patient) -> Finding | None:
    """ROCm opens /dev/kfd and the card's render node for reading and writing."""
    gpu = patient.gpu
    if gpu is None or patient.machine.system != "linux" or "wsl" in patient.machine.overlays:
        return None
    nodes = {node.path: node for node in patient.machine.devices}
    wanted = ["/dev/kfd", *([f"/dev/dri/{gpu.render}"] if gpu.render else [])]
    missing = [path for path in wanted if path not in nodes]
    container = "container" in patient.machine.overlays
    pass_on = "--device=/dev/kfd --device=/dev/dri --group-add $(getent group render | cut -d: -f3)"
    if missing:
        remedy = f"docker run {pass_on} ..." if container else "sudo modprobe amdgpu"
        return Finding("device-permissions", "error", f"{', '.join(missing)} is not there", remedy, (GROUPS_SOURCE,))
    closed = [nodes[path] for path in wanted if not nodes[path].usable]
    if not closed:
        return None
    groups = sorted({node.group for node in closed})
    own = ", ".join(patient.machine.groups) or "none"
    remedy = (
        f"docker run {pass_on} ..." if container else f"sudo usermod -aG {','.join(groups)} $USER, then log in again"
    )
    finding = f"{closed[0].path} belongs to group {closed[0].group} and cannot be opened; groups here: {own}"
    return Finding("device-permissions", "error", finding, remedy, (GROUPS_SOURCE,))


def mixed_gpus(patient: Patient) -> Finding | None:
    """An integrated GPU listed beside a card."""
    clashing, gpu = patient.machine.clashing, patient.gpu
    if gpu is None or not clashing or any(patient.environ.get(name) for name in (HIDES_FIRST, *HIDES_NEXT)):
        return None
    number = patient.machine.visible.index(gpu)
    setting = "set" if patient.machine.system == "windows" else "export"
    return Finding(
        "mixed-gpus",
        "warning",
        f"torch lists {clashing[0]} beside {gpu}; trainings have died of touching both",
        f"In the shell, before Python starts: {setting} HIP_VISIBLE_DEVICES={number}",
        ("https://github.com/ROCm/pytorch/issues/2241", "https://github.com/pytorch/pytorch/issues/119637"),
    )


def wsl_without_gpu(patient: Patient) -> Finding | None:
    """Under WSL2 the GPU is behind /dev/dxg."""
    if "wsl" not in patient.machine.overlays or not patient.hip:
        return None
    if any(node.path == "/dev/dxg" for node in patient.machine.devices):
        return None
    return Finding(
        "wsl-without-gpu",
        "error",
        "/dev/dxg is not there: Windows does not pass a GPU to this WSL",
        "Install the newest AMD driver in Windows, then `wsl --update` and `wsl --shutdown`",
        (WSL_SOURCE,),
    )


def wsl_old_hsa(patient: Patient) -> Finding | None:
    """Ubuntu's own HSA runtime stands before that of ROCm and knows nothing of /dev/dxg."""
    if "wsl" not in patient.machine.overlays or not patient.hip:
        return None
    if not any((patient.machine.root / "var/lib/dpkg/info").glob("libhsa-runtime64-1*.list")):
        return None
    return Finding(
        "wsl-old-hsa",
        "error",
        "Ubuntu's libhsa-runtime64-1 is installed and stands before the runtime of ROCm",
        "sudo apt remove libhsa-runtime64-1 libhsakmt1",
        (WSL_SOURCE,),
    )


def home_on_network(patient: Patient) -> Finding | None:
    """MIOpen leaves a home folder on NFS and keeps its databases in /tmp."""
    if not patient.hip or patient.machine.system != "linux" or patient.environ.get("MIOPEN_USER_DB_PATH"):
        return None
    kind = _file_system(text(patient.machine.root / "proc/mounts"), PurePosixPath(patient.home.as_posix()))
    if not kind.startswith("nfs"):
        return None
    return Finding(
        "home-on-network",
        "warning",
        f"the home folder is on {kind}: MIOpen keeps its databases in /tmp instead, and a reboot loses them",
        "Set MIOPEN_USER_DB_PATH and MIOPEN_CUSTOM_CACHE_DIR to folders on a local disk",
        ("https://github.com/ROCm/rocm-libraries projects/miopen/src/db_path.cpp.in",),
    )


def _file_system(mounts: str, path: PurePosixPath) -> str:
    """Return the type of the file system a path is on."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = PurePosixPath(words[1].replace("\\040", " "))
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), words[2]
    return kind


def shm_small(patient: Patient) -> Finding | None:
    """Workers hand batches over through /dev/shm."""
    size, loader, train = patient.machine.shm_gb, patient.preset.loader, patient.preset.train
    workers = _WORKERS if loader.workers is None else loader.workers
    if patient.machine.system != "linux" or size is None or not workers:
        return None
    batch, image = (_whole(train.get(name), usual) for name, usual in (("batch", _BATCH), ("imgsz", _IMAGE)))
    workers = min(workers, patient.machine.cores)
    need = workers * (loader.prefetch or _PREFETCH) * batch * 3 * image**2 / 2**30
    if size >= need:
        return None
    docker = (
        "docker run --ipc=host ..."
        if "container" in patient.machine.overlays
        else "sudo mount -o remount,size=8G /dev/shm"
    )
    return Finding(
        "shm-small",
        "warning",
        f"/dev/shm has {size * 1024:.0f} MB; {workers} workers can hold {need * 1024:.0f} MB "
        f"of batches ({batch} images of {image} px) and would end in a bus error",
        f"{docker}, or fewer workers=",
        ("https://github.com/pytorch/pytorch/issues/5040",),
    )


def _whole(value: object, usual: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else usual


CHECKS = (
    gpu_hidden,
    no_compute_driver,
    device_permissions,
    mixed_gpus,
    wsl_without_gpu,
    wsl_old_hsa,
    home_on_network,
    shm_small,
)
