"""Which kernels have been seen to compute the right thing on a device; one that does not is struck out."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch

from ..measure import relative_error
from ..problem import ConvProblem
from .available import interpreted
from .launch import Spills

if TYPE_CHECKING:
    from ..algorithms.base import Algorithm

LOG = logging.getLogger("yolo_rocm")
# A kernel that works errs by a few roundings; one that does not is wrong altogether.
_ROUNDINGS: Final = 64
_lock = threading.RLock()
_seen: dict[tuple[str, str, torch.dtype], str | None] = {}


def struck_out(device: str, kernel: str, dtype: torch.dtype) -> str | None:
    """Say why a kernel was struck out on a device, None where it was not."""
    return _seen.get((device, kernel, dtype))


def strike_out(device: str, kernel: str, dtype: torch.dtype, why: str) -> None:
    """Leave a kernel out on a device from now on, with one line in the log."""
    with _lock:
        if _seen.get((device, kernel, dtype)) is None:
            _seen[device, kernel, dtype] = why
            LOG.warning("Triton kernel '%s' is left out on %s for %s: %s", kernel, device, dtype, why)


def forget() -> None:
    """Check everything again."""
    with _lock:
        _seen.clear()


def check(algorithm: Algorithm, kernel: str, problem: ConvProblem, which: str | None = None) -> None:
    """Run a small problem of the same data type and layout, once, and compare with fp64 on the CPU.

    Args:
        algorithm: Whose kernel.
        kernel: What is the same for all sizes of its tiles.
        problem: What it is about to serve.
        which: A pass of it that has to compile now; an algorithm whose tile does not fit the device is struck out.
    """
    _check(algorithm, kernel, problem)
    if which is None or interpreted() or algorithm.not_supported_reasons(problem):
        return
    try:
        algorithm.prepare(problem, which)
    except Spills:
        pass  # slow, not wrong
    except Exception as error:  # a compiler may raise anything
        strike_out(problem.device, algorithm.name, problem.dtype, f"{which} fails with {_in_one_line(error)}")


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _check(algorithm: Algorithm, kernel: str, problem: ConvProblem) -> None:
    key = (problem.device, kernel, problem.dtype)
    if key in _seen or interpreted():
        return
    with _lock:
        if key in _seen:
            return
        why = _wrong(algorithm, _small(problem, kernel))
        if why is None:
            _seen[key] = None
        else:
            strike_out(*key, why)


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
    from ..algorithms import BY_NAME
    from ..tune import PASSES, Operands, run_pass

    everything = 1 << 62
    operands = Operands.of(problem)
    doubles = Operands(*(value.double().cpu() for value in (operands.x, operands.weight, operands.grad)))
    exact = replace(problem, dtype=torch.float64, device="cpu")
    for which in PASSES:
        try:
            result = run_pass(algorithm, problem, which, operands, everything).double().cpu()
        except Exception as error:  # a compiler may raise anything
            return f"{which} fails with {_in_one_line(error)}"
        distance = relative_error(result, run_pass(BY_NAME["windows"], exact, which, doubles, everything))
        if not distance <= _ROUNDINGS * torch.finfo(problem.dtype).eps:
            return f"{which} is wrong, its relative error is {distance:.1e}"
    return None
