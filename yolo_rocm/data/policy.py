"""What a preset says about loaders, applied to the arguments of any `torch.utils.data.DataLoader`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import SequentialSampler

from .main_guard import DEFAULT_METHOD
from .reader import PlainAdapter, Trace
from .transport import HAS_MEMFD
from .worker_count import IMAGE_BYTES, recommended_workers

Observer = Callable[[str, Trace, float, float], None]


def shuffles(sampler: Any) -> bool:
    """Return whether a sampler gives another order for every epoch, as those of training do; None does not."""
    if sampler is None or isinstance(sampler, SequentialSampler):
        return False
    return bool(getattr(sampler, "shuffle", True))  # samplers of distributed trainings say so


@dataclass(frozen=True)
class LoaderPolicy:
    """How batches are loaded.

    Attributes:
        context: Start method of the workers.
        workers: Number of workers; None leaves the caller's number.
        persistent: Keep workers across epochs.
        pin_memory: True, False, or `auto` to find out.
        prefetch: Batches each worker holds ready; None leaves the caller's number.
        timeout: Seconds to wait for a batch before an error; 0 waits without limit.
        reproducible: `worker`: the same batches for the same number of workers; `strict`: for any number.
        skip_broken: Replace samples whose file cannot be read.
        trains: Called when a loader without shuffling is built or starts; True in a training, whose builder asks for
            twice its workers for validation, and where one unreadable file must not end everything.
        device: Called when a training loader starts; the device to copy batches to ahead of time, or None.
        adapter: What the kind of data set needs.
        modules: What a worker imports while it starts.
        insist: The user asked for this number of workers, so it also applies where the caller wanted none.
        tell: Takes a line for the user.
        observe: Takes the kind of loader, the trace of a batch, when it was asked for and when it came.
    """

    context: str = DEFAULT_METHOD
    workers: int | None = None
    persistent: bool = True
    pin_memory: bool | str = "auto"
    prefetch: int | None = None
    timeout: float = 120
    reproducible: str = "worker"
    skip_broken: bool = True
    trains: Callable[[], bool] = lambda: True
    device: Callable[[], Any] = lambda: None
    adapter: PlainAdapter = field(default_factory=PlainAdapter)
    modules: tuple[str, ...] = ("torch", "yolo_rocm.data.worker")
    insist: bool = False
    tell: Callable[[str], object] = lambda line: None
    observe: Observer | None = None

    def apply(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return DataLoader arguments that follow the policy.

        A caller that wants no workers (training on a CPU, a single batch) gets none, unless the user insists.
        """
        result = {**arguments}
        workers = self._workers(result)
        result["num_workers"] = workers
        if workers == 0 or result.get("prefetch_factor") is None:
            result.pop("prefetch_factor", None)
        if workers == 0:
            # DataLoader refuses worker settings without workers.
            for name in ("multiprocessing_context", "timeout", "persistent_workers"):
                result.pop(name, None)
            return result
        if self.prefetch is not None:
            result["prefetch_factor"] = self.prefetch
        result["multiprocessing_context"] = self.context
        result["persistent_workers"] = self.persistent
        result["timeout"] = self.timeout
        return result

    def _workers(self, arguments: Mapping[str, Any]) -> int:
        asked, batch = int(arguments.get("num_workers", 0)), arguments.get("batch_size") or 1
        batches = math.ceil(len(arguments["dataset"]) / batch)
        if self.insist and self.workers is not None:
            return min(self.workers, batches)
        if asked == 0:
            return 0
        validates = not arguments.get("shuffle") and not shuffles(arguments.get("sampler"))
        wanted = self.workers if self.workers is not None else asked
        if self.workers is None and validates and self.trains():
            wanted = max(1, asked // 2)
        found = recommended_workers(
            wanted=wanted,
            batch_size=batch,
            image_bytes=self.adapter.image_bytes(arguments["dataset"]) or IMAGE_BYTES,
            prefetch=self.prefetch or arguments.get("prefetch_factor") or 2,
            memfd=HAS_MEMFD,
        )
        if int(found) < wanted or (wanted == 0 < asked):
            self.tell(str(found))
        return min(int(found), batches)
