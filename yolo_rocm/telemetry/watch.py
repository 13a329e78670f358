"""Telemetry of one training, in one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .choice import sources_for
from .sampler import Sampler
from .table import TelemetryTable


def watch(
    device: Any, folder: Path, *, fresh: bool, interval_s: float, say: Callable[[str], None] = lambda line: None
) -> Sampler:
    """Fill the table of a run from now on, until the returned sampler is stopped.

    Args:
        device: The torch device of the training. Where several processes train, the first one's stands for all.
        folder: The run's folder.
        fresh: Begin the table anew; a resumed run goes on with it.
        interval_s: Seconds between two looks, at least.
        say: Called with one line if there is no more to come before that, or if rows are lost.
    """
    sources = sources_for(device)
    sampler = Sampler(sources.open, TelemetryTable(folder, fresh), interval_s, say)
    sampler.start()
    return sampler
