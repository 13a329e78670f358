"""How many data-loading workers suit a machine, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..hardware import system
from ..utils.process_group import local_world
from . import resources

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
    """A number of workers, why in one line, and every bound that was considered. `int()` gives the number."""

    workers: int
    reason: str
    limits: tuple[Limit, ...] = ()

    def __int__(self) -> int:
        return self.workers

    def __str__(self) -> str:
        return f"{self.workers} worker{'' if self.workers == 1 else 's'}: {self.reason}"


def recommended_workers(
    *,
    wanted: int | None = None,
    asked: bool = False,
    batch_size: int = 16,
    image_bytes: int = IMAGE_BYTES,
    prefetch: int = PREFETCH,
    buffer_images: int | None = None,
    memfd: bool = False,
) -> Recommendation:
    """Return how many workers one loader of one training process should have on this machine.

    Args:
        wanted: The number the preset or the user gives.
        asked: The user asks for workers: a number in `wanted` applies, and the reason names the bounds it exceeds.
        batch_size: Images in one batch.
        image_bytes: Bytes of one image in a batch.
        prefetch: Batches each worker holds ready.
        buffer_images: Images a worker keeps for mosaics; by default min(8 * batch_size, 1000).
        memfd: Batches travel in memory without a name, as those of this package's loaders do on Linux: /dev/shm then
            sets no limit. torch's own loaders are limited by it.

    Returns:
        The number with its reason. 0 on Windows unless asked; elsewhere only if 0 is wanted or no worker fits.
    """
    if buffer_images is None:
        buffer_images = min(MOSAIC_BATCHES * batch_size, MOSAIC_IMAGES)
    batch_bytes = batch_size * image_bytes
    # Shared memory is memory as well: a batch that waits in /dev/shm counts in both.
    worker_bytes = WORKER_MB * 2**20 + buffer_images * image_bytes + prefetch * batch_bytes

    limits = [_by_cores(system.cores(resources.ROOT), resources.training_processes())]
    ram, shm = resources.ram_available(), resources.shm_free()
    ranks = local_world() or 1  # of a distributed training: all of them start workers at the same time
    if ram is not None:
        limits.append(_by_ram(ram / ranks, worker_bytes))
    if shm is not None and not memfd:
        limits.append(_by_shm(shm / ranks, batch_bytes, prefetch))

    if asked and wanted is not None:
        below = [limit for limit in limits if limit.workers < wanted]
        caution = f"; more than advised ({'; '.join(limit.detail for limit in below)})" if below and wanted else ""
        return Recommendation(wanted, f"asked for{caution}", tuple(limits))
    limits.append(_by_wish(wanted))
    if resources.system_name() == "windows" and not asked:
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
