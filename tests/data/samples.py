"""Small data sets that worker processes can import."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info


def late(worker: int) -> None:
    """Let the second worker start after the first one has given a batch."""
    time.sleep(worker)


def worker_pids(loader) -> list[int]:
    """Return the process ids of a loader's workers."""
    return [process.pid for process in loader.iterator.pool.processes]


class Numbers(Dataset):
    """Sample i is i, three random draws, and a picture of 64 KB."""

    def __init__(self, count: int = 40, picture: int = 1 << 16) -> None:
        self.items = [f"item {i}" for i in range(count)]
        self.picture = picture

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict:
        drawn = torch.tensor([random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64)
        image = torch.full((3, self.picture // 3), index % 256, dtype=torch.uint8)
        return {"img": image, "index": index, "drawn": drawn, "name": self.items[index]}


def shared_memory() -> tuple[int, int, int]:
    """Return the segments this process has mapped, their bytes, and its open descriptors of segments."""
    mapped = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:yolo_rocm" in line]
    nbytes = sum(int(end, 16) - int(start, 16) for start, end in (place.split("-") for place in mapped))
    descriptors = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder's own descriptor is gone by now
            descriptors += "memfd:yolo_rocm" in os.readlink(entry)
    return len(mapped), nbytes, descriptors


class Widths(Numbers):
    """Images of five widths, another one every four samples, and what shared memory the reading process has."""

    largest = 3 * 32 * 320  # bytes of an image

    def __getitem__(self, index: int) -> dict:
        image = torch.full((3, 32, 64 * (1 + index // 4 % 5)), index % 256, dtype=torch.uint8)
        memory = shared_memory() if index % 4 == 0 else (0, 0, 0)
        return {"img": image, "index": index, "memory": torch.tensor(memory)}


class Broken(Numbers):
    """Samples 3 and 17 cannot be read."""

    def __getitem__(self, index: int) -> dict:
        if index in (3, 17):
            raise FileNotFoundError(f"no picture {index}")
        return super().__getitem__(index)


class Faulty(Numbers):
    """The code itself is wrong for sample 5."""

    def __getitem__(self, index: int) -> dict:
        if index == 5:
            raise KeyError("colour")
        return super().__getitem__(index)


class Mortal(Numbers):
    """Kills its worker at sample 9, as often as there are files in a folder."""

    def __init__(self, lives: Path) -> None:
        super().__init__()
        self.lives = lives

    def __getitem__(self, index: int) -> dict:
        if index == 9:
            for life in sorted(self.lives.glob("*")):
                life.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Stuck(Numbers):
    """Never returns from sample 9."""

    def __getitem__(self, index: int) -> dict:
        while index == 9:
            time.sleep(0.1)
        return super().__getitem__(index)


class Busy(Numbers):
    """Never returns from any sample after the first eight."""

    def __getitem__(self, index: int) -> dict:
        while index >= 8:
            time.sleep(0.1)
        return super().__getitem__(index)


class Waiting(Numbers):
    """Samples from the ninth on wait for a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def __getitem__(self, index: int) -> dict:
        while index >= 8 and not self.file.exists():
            time.sleep(0.02)
        return super().__getitem__(index)


class Mixed(Numbers):
    """Sample 5 has an image of another type, or of another shape."""

    def __init__(self, odd: torch.Tensor) -> None:
        super().__init__()
        self.odd = odd

    def __getitem__(self, index: int) -> dict:
        return {"img": self.odd if index == 5 else torch.ones(3, 8, 8, dtype=torch.uint8), "index": index}


class Informed(Numbers):
    """Says what torch tells a worker about itself."""

    def __getitem__(self, index: int) -> dict:
        info = get_worker_info()
        assert info.dataset is self
        return {"index": index, "worker": info.id, "workers": info.num_workers, "seed": info.seed}


class Unloadable(Numbers):
    """Cannot be made again in another process."""

    def __setstate__(self, state: dict) -> None:
        raise ValueError("not in this process")


def refuse(worker: int) -> None:
    """An initialiser of workers that fails."""
    raise ValueError(f"worker {worker} is refused")


def leave_the_second_time(file: Path, worker: int) -> None:
    """An initialiser of workers that ends those that come after the first."""
    if file.exists():
        raise SystemExit(3)
    file.touch()


def leave(worker: int) -> None:
    """An initialiser of workers that ends them."""
    raise SystemExit(3)
