"""What is known everywhere: torch's own memory, and the host through psutil."""

from __future__ import annotations

from typing import Any, Final

from .reading import MIB, Reading, Source

# Finding the processes that a training has started goes through those of the whole machine. Workers start early.
_FIND_EVERY: Final = 10  # reads


class Torch(Source):
    """Memory of the GPU as torch has it.

    Args:
        index: torch's number of the card.
        whole_card: Also ask the driver for all memory in use; for where no other source has it.
    """

    name = "torch"

    def __init__(self, index: int, whole_card: bool = False) -> None:
        self._index, self._whole_card = index, whole_card

    def why_not(self) -> str | None:
        """Return whether torch has not started on a GPU: reading must not be what starts it."""
        import torch

        cuda: Any = torch.cuda  # has no types in every version
        return None if cuda.is_initialized() else "torch has not started on a GPU"

    def read(self) -> Reading:
        """Read torch's allocator, and the driver where wanted."""
        import torch

        reserved = torch.cuda.memory_reserved(self._index) / MIB
        if not self._whole_card or not hasattr(torch.cuda, "mem_get_info"):
            return Reading(torch_reserved_mb=reserved).plausible()
        free, total = torch.cuda.mem_get_info(self._index)
        used = (total - free) / MIB
        return Reading(vram_used_mb=used, vram_total_mb=total / MIB, torch_reserved_mb=reserved).plausible()


class Host(Source):
    """Processors and memory of the host, and the share of the processors that this training uses.

    Args:
        psutil: The module, or None where it is not installed.
    """

    name = "psutil"

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._before: tuple[float, float] | None = None
        self._tree = _Tree(psutil)

    def why_not(self) -> str | None:
        """Return whether psutil is missing; it comes with Ultralytics."""
        return "psutil cannot be imported" if self._psutil is None else None

    def read(self) -> Reading:
        """Read times since the last read, and memory now."""
        memory = self._psutil.virtual_memory()
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Linux counts the time of guests in that of users as well.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        before, self._before = self._before, (total, idle)
        own_s = self._tree.seconds()
        share = own = None
        if before is not None and total > before[0]:
            # psutil.cpu_percent() does the same, with one memory for all of its callers in a process.
            share = 100 * (1 - (idle - before[1]) / (total - before[0]))
            share = min(100.0, max(0.0, share))  # the kernel's idle time may step back a tick
            if own_s is not None:
                # The clocks tick apart, and a worker that is found late brings the time it has used since it started.
                own = min(share, max(0.0, 100 * own_s / (total - before[0])))
        used = (memory.total - memory.available) / MIB
        return Reading(host_cpu_percent=share, host_memory_mb=used, own_cpu_percent=own).plausible()


class _Tree:
    """Processor time of this process and of all it has started."""

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._reads = 0
        self._processes: list[Any] = []
        self._before: float | None = None

    def seconds(self) -> float | None:
        """Return the processor seconds since the last read; None where they are not known."""
        try:
            if self._reads < _FIND_EVERY or self._reads % _FIND_EVERY == 0:
                own = self._psutil.Process()
                self._processes = [own, *own.children(recursive=True)]
            self._reads += 1
            now = sum(map(self._used, self._processes))
        except Exception:  # a system that does not let a process see its own times
            self._before = None
            return None
        before, self._before = self._before, now
        return None if before is None else now - before

    def _used(self, process: Any) -> float:
        """Return the seconds of a process and of its children that have ended; 0 for one that has ended itself."""
        try:
            times = process.cpu_times()
        except self._psutil.Error:
            return 0.0
        return float(times.user + times.system + times.children_user + times.children_system)
