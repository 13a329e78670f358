"""Telemetry of one training, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .choice import sources_for
from .sampler import Sampler
from .table import TelemetryTable


def watch(device: Any, folder: Path, *, fresh: bool, interval_s: float) -> Sampler:
    """Fill the table of a run from now on, until the returned sampler is stopped.

    Args:
        device: The torch device of the training. Where several processes train, the first one's stands for all.
        folder: The run's folder.
        fresh: Begin the table anew; a resumed run goes on with it.
        interval_s: Seconds between two looks, at least.
    """
    sources = sources_for(device)
    sampler = Sampler(sources.open, TelemetryTable(folder, fresh), interval_s)
    sampler.start()
    return sampler
