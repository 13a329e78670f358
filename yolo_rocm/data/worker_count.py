"""How many data-loading workers suit a machine, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import ConfigError, nearest
from ..utils.process_group import local_world
from . import resources

SYSTEMS: Final = ("linux", "macos", "windows")
_ALIASES: Final = {"darwin": "macos", "win32": "windows", "wsl": "linux"}

# Where neither the preset nor the user says a number; `yolo` has the same default.
DEFAULT_WANTED: Final = 8
# Private memory of one spawned worker that has imported torch, OpenCV and a training library: 150 to 260 MB were
# measured with the CPU build of torch 2.10 on aarch64; the upper end is used. ROCm builds were not measured.
WORKER_MB: Final = 260.0
# Bytes of one image in a batch: 640 x 640 pixels of 3 bytes (uint8 until the device).
IMAGE_BYTES: Final = 640 * 640 * 3
# A training with mosaics keeps up to min(8 * batch, 1000) resized images in every worker to make them from.
MOSAIC_BATCHES: Final = 8
MOSAIC_IMAGES: Final = 1000
# Batches each worker holds ready in shared memory.
PREFETCH: Final = 4
# A policy, not a measurement: half of the free memory stays with the training process and the page cache, which
# holds the images.
RAM_SHARE: Final = 0.5


@dataclass(frozen=True)
class Limit:
    """One bound on the number of workers: what sets it, the number it allows, and how that comes about."""

    name: str
    workers: int
    detail: str


@dataclass(frozen=True)
class Recommendation:
    """A number of workers, why in one line, and every bound that was considered. Usable as an integer."""

    workers: int
    reason: str
    limits: tuple[Limit, ...] = ()

    def __int__(self) -> int:
        return self.workers

    def __index__(self) -> int:
        return self.workers

    def __str__(self) -> str:
        return f"{self.workers} worker{'' if self.workers == 1 else 's'}: {self.reason}"


def recommended_workers(
    *,
    system: str | None = None,
    cores: int | None = None,
    gpus: int | None = None,
    ram_gb: float | None = None,
    shm_gb: float | None = None,
    wanted: int | None = None,
    asked: bool = False,
    batch_size: int = 16,
    image_bytes: int = IMAGE_BYTES,
    per_worker_mb: float = WORKER_MB,
    prefetch: int = PREFETCH,
    buffer_images: int | None = None,
    memfd: bool = False,
    root: Path = resources.ROOT,
) -> Recommendation:
    """Return how many workers one loader of one training process should have here, or on a machine that is described.

    Args:
        system: `linux`, `macos` or `windows`; this machine's by default, as are the next four.
        cores: CPU cores the training may use.
        gpus: Training processes that share the cores, one per GPU.
        ram_gb: Free memory in GB (2**30 bytes).
        shm_gb: Free space in /dev/shm in GB. Without an argument, systems that have none are not limited by it.
        wanted: The number the preset or the user gives.
        asked: The user asks for workers: a number in `wanted` applies, and the reason names the bounds it exceeds.
        batch_size: Images in one batch.
        image_bytes: Bytes of one image in a batch.
        per_worker_mb: Private memory of a worker before it holds any image.
        prefetch: Batches each worker holds ready.
        buffer_images: Images a worker keeps for mosaics; by default min(8 * batch_size, 1000).
        memfd: Batches travel in memory without a name, as those of this package's loaders do on Linux: /dev/shm then
            sets no limit. torch's own loaders are limited by it.
        root: Top of the file system the facts are read from.

    Returns:
        The number with its reason. 0 on Windows unless asked; elsewhere only if 0 is wanted or no worker fits.

    Raises:
        ConfigError: The system is unknown, or a number is out of range.
    """
    system = _system(system)
    ranges = {
        "cores": (cores, 1),
        "gpus": (gpus, 0),
        "ram_gb": (ram_gb, 0),
        "shm_gb": (shm_gb, 0),
        "wanted": (wanted, 0),
        "batch_size": (batch_size, 1),
        "image_bytes": (image_bytes, 1),
        "per_worker_mb": (per_worker_mb, 0),
        "prefetch": (prefetch, 1),
        "buffer_images": (buffer_images, 0),
    }
    for name, (value, least) in ranges.items():
        if value is not None and value < least:
            raise ConfigError(f"{name}={value} for a recommendation of workers: at least {least} is needed.")

    if buffer_images is None:
        buffer_images = min(MOSAIC_BATCHES * batch_size, MOSAIC_IMAGES)
    batch_bytes = batch_size * image_bytes
    # Shared memory is memory as well: a batch that waits in /dev/shm counts in both.
    worker_bytes = per_worker_mb * 2**20 + buffer_images * image_bytes + prefetch * batch_bytes

    sharing = gpus if gpus is not None else resources.gpu_count(root)
    limits = [_by_cores(cores or resources.cpu_cores(root), max(1, sharing))]
    ram = ram_gb * 2**30 if ram_gb is not None else resources.ram_available(root)
    ranks = local_world() or 1  # of a distributed training: all of them start workers at the same time
    if ram is not None:
        limits.append(_by_ram(ram / ranks, worker_bytes))
    shm = shm_gb * 2**30 if shm_gb is not None else resources.shm_free(root) if system == "linux" else None
    if shm is not None and not memfd:
        limits.append(_by_shm(shm / ranks, batch_bytes, prefetch))

    if asked and wanted is not None:
        below = [limit for limit in limits if limit.workers < wanted]
        caution = f"; more than advised ({'; '.join(limit.detail for limit in below)})" if below and wanted else ""
        return Recommendation(wanted, f"asked for{caution}", tuple(limits))
    limits.append(_by_wish(wanted))
    if system == "windows" and not asked:
        reason = (
            "on Windows every worker is a new process that loads torch again and needs the script's main guard; "
            "batches are loaded in the training process unless workers are asked for (workers=4)"
        )
        return Recommendation(0, reason, tuple(limits))
    least_of_all = min(limits, key=lambda limit: limit.workers)
    allowed = ", ".join(f"{limit.name} {limit.workers}" for limit in limits)
    reason = f"{least_of_all.detail} ({allowed})"
    if least_of_all.workers == 0 and wanted != 0:
        reason = f"not one fits, batches are loaded in the training process: {reason}"
    return Recommendation(least_of_all.workers, reason, tuple(limits))


def _by_cores(cores: int, gpus: int) -> Limit:
    share = "" if gpus == 1 else f" shared by {gpus} GPUs"
    return Limit("cores", max(1, cores // gpus), f"{cores} CPU core{'' if cores == 1 else 's'}{share}")


def _by_wish(wanted: int | None) -> Limit:
    if wanted is None:
        return Limit("default", DEFAULT_WANTED, f"{DEFAULT_WANTED} is the default")
    return Limit("preset", wanted, f"the preset wants {wanted}")


def _by_ram(free: float, each: float) -> Limit:
    detail = f"{_size(free)} RAM free, of which workers get half, and each takes about {_size(each)}"
    return Limit("RAM", int(free * RAM_SHARE // each), detail)


def _by_shm(free: float, batch: int, prefetch: int) -> Limit:
    # One more batch than the workers hold ready: the one the training step is reading.
    fit = max(0, int(free // batch) - 1) // prefetch
    detail = f"{_size(free)} free in /dev/shm for {prefetch} batches of {_size(batch)} each"
    return Limit("/dev/shm", fit, detail if fit >= 2 else f"{detail}; a container needs --shm-size or --ipc=host")


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


def _system(name: str | None) -> str:
    if name is None:
        return resources.system_name()
    found = _ALIASES.get(name.lower(), name.lower())
    if found not in SYSTEMS:
        raise ConfigError(f"system={name!r} is not known; allowed: {', '.join(SYSTEMS)}{nearest(found, SYSTEMS)}")
    return found
