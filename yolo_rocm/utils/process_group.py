"""The process group of a training of several processes, as the variables of a launcher such as torchrun describe it."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ..errors import ConfigError, StackError

# What Ultralytics waits for a rank that validates or caches images.
PATIENCE_S: Final = 3 * 3600
_BLOCKING: Final = "TORCH_NCCL_BLOCKING_WAIT"  # without it NCCL and RCCL ignore the timeout
_ended_well = False


@dataclass(frozen=True)
class Place:
    """Which of the processes that a launcher has started this one is.

    Attributes:
        rank: Its number among all of them; 0 writes and reports.
        local_rank: Its number on this machine, which chooses the GPU.
        world: How many there are.
        local_world: How many of them run on this machine.
    """

    rank: int
    local_rank: int
    world: int
    local_world: int

    @property
    def spans_machines(self) -> bool:
        """Whether some of the processes run on other machines."""
        return self.world > self.local_world


def place() -> Place | None:
    """Return the place of this process; None where no launcher's variables are set."""
    words = [os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
    if not all(word.isdigit() for word in words):
        return None
    rank, local, world = (int(word) for word in words)
    return Place(rank, local, world, local_world() or world)


def local_world() -> int | None:
    """Return how many training processes of this launch run on this machine; None where no launcher says so."""
    word = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(word)) if word.isdigit() else None


def gpus_named(device: Any) -> int:
    """Return how many GPUs Ultralytics' `device` argument names, as text or as a list; 1 where it names none."""
    names = device if isinstance(device, list | tuple) else str(device or "").split(",")
    return max(1, len([name for name in names if str(name).strip()]))


def local_device(asked: Any, here: Place) -> Any:
    """Return the torch device of this process.

    Args:
        asked: Ultralytics' `device` argument: nothing, `cpu`, or the GPUs of this machine, one for each process.
        here: The place of this process.

    Raises:
        ConfigError: There are fewer GPUs than processes.
    """
    import torch

    text = str("" if asked is None else asked).lower()
    if text in ("cpu", "mps") or not torch.cuda.is_available():
        return torch.device("cpu")
    names = re.findall(r"\d+", text)
    # Older Ultralytics hides every other GPU, so that those named count from 0.
    hidden = not names or os.environ.get("CUDA_VISIBLE_DEVICES") == ",".join(names)
    count = torch.cuda.device_count()
    usable = list(range(min(count, len(names) or count))) if hidden else [int(n) for n in names if int(n) < count]
    if len(usable) < here.local_world:
        raise ConfigError(
            f"{here.local_world} processes on this machine need a GPU each: torch finds {count}, device={asked}. Name "
            "one for each, leave device out, or start fewer (--nproc_per_node)."
        )
    return torch.device("cuda", usable[here.local_rank])


def join(here: Place, device: Any, patience_s: float = PATIENCE_S) -> None:
    """Join the group of all processes, once; it holds as long as this process lives.

    A group cannot be joined a second time with the same launcher, so a second training uses the first one's.

    Args:
        here: The place of this process.
        device: Its device. GPUs communicate by NCCL, which is RCCL on AMD, CPUs by Gloo.
        patience_s: How long a process waits for the others before it gives up.

    Raises:
        StackError: This torch was built without distributed training.
    """
    import torch
    from torch import distributed

    if not distributed.is_available():
        raise StackError("this torch was built without torch.distributed: train with one process and one GPU.")
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    if distributed.is_initialized():
        return
    backend = "nccl" if on_gpu and distributed.is_nccl_available() else "gloo"
    os.environ.setdefault(_BLOCKING, "1")  # as long as the group, which is as long as this process
    distributed.init_process_group(
        backend, timeout=timedelta(seconds=patience_s), rank=here.rank, world_size=here.world
    )
    atexit.register(_leave)


def is_joined() -> bool:
    """Return whether this process has joined the others."""
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized())


def training_ended(well: bool) -> None:
    """Note how the newest training ended: a group with a rank that failed is not waited for."""
    global _ended_well
    _ended_well = well


def _leave() -> None:
    from torch import distributed

    if _ended_well and distributed.is_initialized():
        with suppress(RuntimeError, ValueError):
            distributed.destroy_process_group()


def from_first(value: Any) -> Any:
    """Return what rank 0 has passed, in every rank."""
    from torch import distributed

    values = [value]
    distributed.broadcast_object_list(values, src=0)
    return values[0]


def gathered(value: Any) -> list[Any]:
    """Return what every rank has passed, by rank."""
    from torch import distributed

    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


@contextmanager
def in_turn(here: Place) -> Iterator[None]:
    """Let rank 0 go first, then the first process of every other machine, then all others.

    What it guards is done once where machines share a disk, and once for each machine where they do not.
    """
    from torch import distributed

    turn = 0 if here.rank == 0 else 1 if here.local_rank == 0 else 2
    for _ in range(turn):
        distributed.barrier()
    yield
    for _ in range(2 - turn):
        distributed.barrier()


def is_first_to(deed: str) -> bool:
    """Return whether this process is the first of its group to ask for `deed`; True where there is no group.

    Where the group can no longer be asked, the first process of each machine is.
    """
    from torch import distributed

    try:
        if not is_joined():
            return True
        store = distributed.distributed_c10d._get_default_store()
        return bool(store.add(f"yolo_rocm/{deed}", 1) == 1)
    except Exception:  # the store went with the machine that held it
        here = place()
        return here is None or here.local_rank == 0
