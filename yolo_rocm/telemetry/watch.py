"""Telemetry of one training, in one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .sampler import Sampler
from .sources import sources_for
from .table import TelemetryTable


def watch(
    device: Any, folder: Path, *, fresh: bool, interval_s: float, say: Callable[[str], None] = lambda line: None
) -> Sampler:
    """Fill the table of a run from now on, until the returned sampler is stopped.

    Args:
        device: The torch device of the training; of several processes, that of the first.
        folder: The run's folder.
        fresh: Begin the table anew; a resumed run goes on with it.
        interval_s: Seconds between two rows, at least.
        say: Called with one line if there is no more to come before that, or if rows are lost.
    """
    sampler = Sampler(sources_for(device), TelemetryTable(folder, fresh), interval_s, say)
    sampler.start()
    return sampler
