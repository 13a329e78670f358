"""Qualification: algorithms whose kernels are compiled on the spot run once on each device before their first use."""

from __future__ import annotations

import threading
from typing import Any, Final

import torch

from .faults import in_one_line, raise_if_lost
from .kernel_errors import Spills
from .operator import A, Operator, P
from .quarantine import quarantine_kernel
from .triton.available import interpreted

# A kernel that works errs by a few roundings; one that does not is wrong altogether.
ROUNDINGS: Final = 64
_lock = threading.RLock()
_seen: set[tuple[str, str, str, torch.dtype]] = set()


def check(operator: Operator[P, A], algorithm: A, problem: P, which: str | None = None) -> None:
    """Run a small problem of the same data type and layout, once, and compare with fp64 on the CPU.

    A kernel that fails or errs is quarantined: from then on it is among the algorithm's reasons.

    Args:
        operator: The operator.
        algorithm: Whose kernel; nothing is done where it has none of its own.
        problem: What it is about to compute.
        which: A pass of it that has to compile now; an algorithm whose tile does not fit the device is quarantined.

    Raises:
        DeviceLostError: The device does not compute any more afterwards.
    """
    tested: Any = algorithm.tested_by()
    if tested.kernel is None or interpreted():
        return
    key = (operator.name, problem.device, tested.kernel, problem.dtype)
    with _lock:
        if key not in _seen:
            why = _wrong(operator, tested, operator.small(problem, tested.kernel))
            if why is not None:
                quarantine_kernel(*key, why)
            _seen.add(key)
    if which is None or algorithm.not_supported_reasons(problem):
        return
    try:
        algorithm.prepare(problem, which)
    except Spills:
        pass  # slow, not wrong
    except Exception as error:  # a compiler may raise anything
        raise_if_lost(error, problem, operator.name, algorithm.name, which)
        why = f"{which} fails with {in_one_line(error)}"
        quarantine_kernel(operator.name, problem.device, algorithm.name, problem.dtype, why)


def forget() -> None:
    """Check everything again."""
    with _lock:
        _seen.clear()


def _wrong(operator: Operator[P, A], algorithm: A, problem: P) -> str | None:
    operands = operator.operands(problem)
    for which in operator.passes:
        try:
            result = operator.run(algorithm, problem, which, operands).double().cpu()
        except Exception as error:  # a compiler may raise anything
            raise_if_lost(error, problem, operator.name, algorithm.name, which)
            return f"{which} fails with {in_one_line(error)}"
        distance = operator.distance(problem, which, result, operator.in_fp64(problem, which, operands, "cpu"))
        if not distance <= ROUNDINGS * torch.finfo(problem.dtype).eps:
            return f"{which} is wrong, its relative error is {distance:.1e}"
    return None
