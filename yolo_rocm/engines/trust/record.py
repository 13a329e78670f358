"""The record of a device: kernels and algorithms that are left out there, and why.

An ordinary failure costs a line. After a fault a GPU computes nothing any more in the same process, and every later
call fails too, often in words that mean something else: so the device is checked after each failure, and the algorithm
that made it fault is kept on disk, to be left out by the next process.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import torch

from ...errors import DeviceLostError
from ...utils.error_text import typed_line
from ...utils.log_lines import log
from ..device_state import STATE
from ..devices import alive
from ..names import Pass
from ..operator import BaseAlgorithm, Problem
from ..plan_store import PlanStore

WRONG: Final = "it gives wrong numbers"
_lock = threading.Lock()
_records: dict[str, DeviceRecord] = STATE.container({})


class DeviceRecord:
    """What is known of the kernels on one device. Operators are known by name, a tile by its algorithm's name.

    Attributes:
        lock: Held while a kernel is qualified.
        qualified: What was checked on a small problem: (operator, kernel, data type).
        compared: What was compared at its own size: (operator, algorithm, problem, pass).
    """

    def __init__(self, device: str) -> None:
        self.device, self.lock = device, threading.RLock()
        self.qualified: set[tuple[str, str, torch.dtype]] = set()
        self.compared: set[tuple[str, str, Problem, Pass]] = set()
        self._quarantined: dict[tuple[str, str, torch.dtype], str] = {}
        self._wrong: set[tuple[str, str, Problem]] = set()
        self._logged: set[tuple[str, str, torch.dtype, str]] = set()
        self._faults: PlanStore | None = None  # {operator/algorithm: {dtype: why}}; None until it is read

    def recall_faults(self) -> PlanStore:
        """Read which algorithms have made the device fault, once per process; each is logged in a line."""
        with self.lock:
            if self._faults is None:
                self._faults = PlanStore(self.device, kind="faults")
                for key, by_dtype in self._faults.entries.items():
                    for dtype, why in by_dtype.items():
                        facts = key.partition("/")[2], self.device, dtype, self._with_file(why)
                        log("kernel.fault_recalled", "'%s' is left out on %s for %s: %s", *facts)
            return self._faults

    def reasons(self, operator: str, name: str, problem: Problem) -> list[str]:
        """Return why an algorithm is left out for a problem, as far as `recall_faults` has read."""
        if (operator, name, problem) in self._wrong:
            return [WRONG]
        faults = {} if self._faults is None else self._faults.entries.get(f"{operator}/{name}", {})
        why = faults.get(_short(problem.dtype))
        return [] if why is None else [self._with_file(why)]

    def quarantine_reason(self, operator: str, kernel: str, dtype: torch.dtype) -> str | None:
        """Say why a kernel is quarantined; None where it is not."""
        return self._quarantined.get((operator, kernel, dtype))

    def quarantine(self, operator: str, kernel: str, dtype: torch.dtype, why: str) -> None:
        """Disable a kernel for the rest of the process, with one line in the log."""
        with self.lock:
            if (operator, kernel, dtype) not in self._quarantined:
                self._quarantined[operator, kernel, dtype] = why
                facts = kernel, self.device, dtype, why
                log("kernel.quarantined", "kernel '%s' is left out on %s for %s: %s", *facts)

    def dropped(self, operator: str, name: str, problem: Problem, which: Pass, why: str, usual: bool = False) -> None:
        """Log that an algorithm is left out of a choice: a warning the first time, unless that is usual."""
        kind = (operator, name, problem.dtype, why)
        level = logging.DEBUG if usual or kind in self._logged else logging.WARNING
        self._logged.add(kind)
        log("kernel.dropped", "%s is left out for %s, %s: %s", name, problem, which, why, level=level)

    def gave_wrong_numbers(self, operator: str, name: str, problem: Problem, which: Pass) -> None:
        """Leave an algorithm out for one problem, in this process: the next one compares it before its first use."""
        self._wrong.add((operator, name, problem))
        self.dropped(operator, name, problem, which, WRONG)

    def add_fault(self, operator: str, name: str, dtype: torch.dtype, why: str) -> str:
        """Keep on disk that an algorithm has made the device fault; return how to have it tried again."""
        store, key = self.recall_faults(), f"{operator}/{name}"
        store.add({key: {**store.entries.get(key, {}), _short(dtype): why}})
        return f"It is left out here for {_short(dtype)} from now on; delete {store.path} to have it tried again. "

    def _with_file(self, why: str) -> str:
        return why if self._faults is None else f"{why}; delete {self._faults.path} to have it tried again"


def record_of(device: str) -> DeviceRecord:
    """Return the record of a device in this process."""
    record = _records.get(device)
    if record is None:
        with _lock:
            record = _records.setdefault(device, DeviceRecord(device))
    return record


def quarantine_reasons(operator: str, algorithm: BaseAlgorithm[Any], problem: Problem) -> list[str]:
    """Return why an algorithm's kernel, or else its tile, is quarantined on a device; nothing where it is not."""
    record = record_of(problem.device)
    names = (algorithm.kernel or "", algorithm.name)
    return [why for name in names if (why := record.quarantine_reason(operator, name, problem.dtype))][:1]


def raise_if_lost(
    error: Exception, problem: Problem, operator: str = "", name: str | None = None, which: Pass | None = None
) -> None:
    """Check whether the device still computes after an error of an algorithm, or of none, in a pass of a problem.

    Raises:
        DeviceLostError: It does not. It names the algorithm, which is left out here by every later process.
    """
    if alive(problem.device):
        return
    doing = "memory was taken for" if name is None else f"'{name}' computed {which} of"
    text = f"{problem.device} does not answer any more since {doing} {problem}: {typed_line(error)}. "
    if name is not None:
        why = f"it made the device fault in {which} of {problem} ({typed_line(error)})"
        text += record_of(problem.device).add_fault(operator, name, problem.dtype, why)
    text += "Nothing more can be computed there in this process: start the same command again."
    raise DeviceLostError(text) from error


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
