"""Which of the processes of a training this one is, as Ultralytics sees it."""

from __future__ import annotations

from typing import Any

from ..utils import process_group


def rank() -> int:
    """Return the global rank Ultralytics believes to have; -1 where it trains in one process."""
    from ultralytics.utils import RANK

    return int(RANK)


def is_main_rank() -> bool:
    """Return whether this process writes files and speaks to the user: rank 0 does, or the only process."""
    return rank() in (-1, 0)


def place_of_rank() -> process_group.Place | None:
    """Return which of the ranks of a training this process is; None where it trains alone."""
    return process_group.place() if rank() >= 0 else None


def ranks_asked(device: Any) -> int:
    """Return how many processes are going to train together: those of a launcher, or one for each GPU of `device`."""
    here = place_of_rank()
    return here.world if here is not None else process_group.gpus_named(device)
