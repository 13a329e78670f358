"""Algorithms whose kernels are compiled on the spot are tried once on each device, before they serve there."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

import torch

from ..conv.algorithms import BY_NAME, Algorithm
from ..conv.problem import ConvProblem
from .faults import in_one_line, raise_if_lost
from .measure import relative_error
from .triton.available import interpreted
from .triton.launch import Spills
from .triton.quarantine import quarantine_kernel
from .tuning import PASSES, Operands, run_pass

# A kernel that works errs by a few roundings; one that does not is wrong altogether.
_ROUNDINGS: Final = 64
_lock = threading.RLock()
_seen: set[tuple[str, str, torch.dtype]] = set()


def check(algorithm: Algorithm, problem: ConvProblem, which: str | None = None) -> None:
    """Run a small problem of the same data type and layout, once, and compare with fp64 on the CPU.

    A kernel that fails or errs is struck out: from then on the algorithm's reasons know.

    Args:
        algorithm: Whose kernel; nothing is done where it has none of its own.
        problem: What it is about to serve.
        which: A pass of it that has to compile now; an algorithm whose tile does not fit the device is struck out.

    Raises:
        DeviceLostError: The device does not answer any more afterwards.
    """
    tested = algorithm.tested_by()
    if tested.kernel is None or interpreted():
        return
    _check(tested, tested.kernel, problem)
    if which is None or algorithm.not_supported_reasons(problem):
        return
    try:
        algorithm.prepare(problem, which)
    except Spills:
        pass  # slow, not wrong
    except Exception as error:  # a compiler may raise anything
        raise_if_lost(error, problem, algorithm.name, which)
        quarantine_kernel(problem.device, algorithm.name, problem.dtype, f"{which} fails with {in_one_line(error)}")


def forget() -> None:
    """Check everything again."""
    with _lock:
        _seen.clear()


def _check(algorithm: Algorithm, kernel: str, problem: ConvProblem) -> None:
    key = (problem.device, kernel, problem.dtype)
    if key in _seen:
        return
    with _lock:
        if key in _seen:
            return
        why = _wrong(algorithm, _small(problem, kernel))
        if why is not None:
            quarantine_kernel(*key, why)
        _seen.add(key)


def _small(problem: ConvProblem, kernel: str) -> ConvProblem:
    """Return a problem with odd sizes and a stride that a kernel serves."""
    channels, outs, groups = {"flat": (3, 20, 1), "depthwise": (24, 24, 24)}.get(kernel, (24, 40, 1))
    return replace(
        problem,
        input_shape=(2, channels, 13, 11),
        weight_shape=(outs, channels // groups, 3, 3),
        stride=(2, 2),
        padding=(1, 1),
        dilation=(1, 1),
        output_padding=(0, 0),
        groups=groups,
        transposed=False,
    )


def _wrong(algorithm: Algorithm, problem: ConvProblem) -> str | None:
    everything = 1 << 62
    operands = Operands.of(problem)
    doubles = Operands(*(value.double().cpu() for value in (operands.x, operands.weight, operands.grad)))
    exact = replace(problem, dtype=torch.float64, device="cpu")
    for which in PASSES:
        try:
            result = run_pass(algorithm, problem, which, operands, everything).double().cpu()
        except Exception as error:  # a compiler may raise anything
            raise_if_lost(error, problem, algorithm.name, which)
            return f"{which} fails with {in_one_line(error)}"
        distance = relative_error(result, run_pass(BY_NAME["windows"], exact, which, doubles, everything))
        if not distance <= _ROUNDINGS * torch.finfo(problem.dtype).eps:
            return f"{which} is wrong, its relative error is {distance:.1e}"
    return None
