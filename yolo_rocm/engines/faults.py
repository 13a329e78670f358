"""Candidates that fail: an ordinary failure costs a line, one that takes the device with it ends the process's work.

After a fault a GPU computes nothing any more in the same process, and every later call fails too, often in words that
mean something else. So the device is checked after each failure. The algorithm that made it fault is kept on disk, and
left out by the next process.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import torch

from ..errors import DeviceLostError
from ..utils.error_text import typed_line
from ..utils.log_lines import log
from .device_state import STATE
from .devices import alive
from .names import Pass
from .operator import Problem
from .plan_store import PlanStore

WRONG: Final = "it gives wrong numbers"
_lock = threading.Lock()
_known: dict[str, PlanStore] = STATE.container({})  # device -> {operator/algorithm: {dtype: why}}
_wrong: set[tuple[str, str, Problem]] = STATE.container(set())  # (operator, algorithm, problem)
_logged: set[tuple[str, str, str, torch.dtype, str]] = STATE.container(set())


def recall(device: str) -> None:
    """Read which algorithms have made a device fault, once per process; each is logged in a line."""
    with _lock:
        if device in _known:
            return
        store = PlanStore(device, kind="faults")
        for key, by_dtype in store.entries.items():
            name = key.partition("/")[2]  # a name alone is from an older file, and of no effect
            for dtype, why in by_dtype.items() if name else ():
                log(
                    "kernel.fault_recalled",
                    "'%s' is left out on %s for %s: %s",
                    name,
                    device,
                    dtype,
                    _left_out(why, store),
                )
        _known[device] = store


def reasons(operator: str, name: str, problem: Problem) -> list[str]:
    """Return why an algorithm is left out on the problem's device, as far as `recall` has read."""
    if (operator, name, problem) in _wrong:
        return [WRONG]
    store = _known.get(problem.device)
    why = None if store is None else store.entries.get(f"{operator}/{name}", {}).get(_short(problem.dtype))
    return [] if store is None or why is None else [_left_out(why, store)]


def dropped(operator: str, name: str, problem: Problem, which: Pass, why: str, expected: bool = False) -> None:
    """Log that an algorithm is left out of a choice: a warning the first time, unless it was to be expected."""
    kind = (operator, name, problem.device, problem.dtype, why)
    level = logging.DEBUG if expected or kind in _logged else logging.WARNING
    _logged.add(kind)
    log("kernel.dropped", "%s is left out for %s, %s: %s", name, problem, which, why, level=level)


def wrong(operator: str, name: str, problem: Problem, which: Pass) -> None:
    """Leave an algorithm out for one problem, in this process: the next one compares it before its first use too."""
    _wrong.add((operator, name, problem))
    dropped(operator, name, problem, which, WRONG)


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
    text = f"{problem.device} does not answer any more since {doing} {problem}: {in_one_line(error)}. "
    if name is not None:
        recall(problem.device)
        store, dtype = _known[problem.device], _short(problem.dtype)
        why = f"it made the device fault in {which} of {problem} ({in_one_line(error)})"
        key = f"{operator}/{name}"
        store.add({key: {**store.entries.get(key, {}), dtype: why}})
        text += f"It is left out here for {dtype} from now on; delete {store.path} to have it tried again. "
    text += "Nothing more can be computed there in this process: start the same command again."
    raise DeviceLostError(text) from error


def in_one_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    return typed_line(error)


def _left_out(why: str, store: PlanStore) -> str:
    return f"{why}; delete {store.path} to have it tried again"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
