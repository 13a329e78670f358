"""A loader policy over the arguments of any `torch.utils.data.DataLoader`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class LoaderPolicy:
    """What a preset says about loaders.

    Attributes:
        context: Start method of the workers.
        workers: Number of workers; None leaves the caller's number.
        persistent: Keep workers across epochs.
        pin_memory: True, False, or `auto` for the caller's choice.
        prefetch: Batches each worker holds ready; None leaves the caller's number.
        timeout: Seconds to wait for a worker before an error; 0 waits for ever.
        insist: The number of workers was asked for by the user, so it also holds where the caller wanted none.
    """

    context: str | None = None
    workers: int | None = None
    persistent: bool = True
    pin_memory: bool | str = "auto"
    prefetch: int | None = None
    timeout: float = 0
    insist: bool = False

    def apply(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return DataLoader arguments that follow the policy.

        A caller that wants no workers (training on a CPU, a single batch) gets none, unless the user insists.
        """
        result = dict(arguments)
        workers = int(result.get("num_workers", 0))
        if self.workers is not None and (workers > 0 or self.insist):
            batches = math.ceil(len(result["dataset"]) / max(1, result.get("batch_size") or 1))
            limit = self.workers if self.insist else min(self.workers, os.cpu_count() or 1)
            workers = min(limit, batches)
        result["num_workers"] = workers
        if self.pin_memory != "auto":
            result["pin_memory"] = bool(self.pin_memory) and torch.cuda.is_available()
        if workers == 0:
            # DataLoader refuses worker settings without workers.
            for name in ("prefetch_factor", "multiprocessing_context", "timeout", "persistent_workers"):
                result.pop(name, None)
            return result
        result["persistent_workers"] = self.persistent
        result["timeout"] = self.timeout
        if self.context is not None:
            result["multiprocessing_context"] = self.context
        if self.prefetch is not None:
            result["prefetch_factor"] = self.prefetch
        elif result.get("prefetch_factor") is None:
            result.pop("prefetch_factor", None)
        return result
