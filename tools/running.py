"""A kernel's assembly run on tensors, and what it wrote compared with what it should have written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from tools.emulator import Memory, Program, launch
from tools.kernel import Group, Kernel

_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY: Final[dict[int, Any]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
# Roundings to fp32 that a result may have lost, in units of its terms' magnitudes: all of it together, one element.
_ROUNDINGS: Final = 8
_OF_AN_ELEMENT: Final = 64
_MULTIPLY_ADDS: Final = ("v_fma", "v_mad_mix", "v_pk_fma", "v_dot", "v_wmma", "v_mfma")


@dataclass(frozen=True)
class Outcome:
    """What a run of a kernel showed of a tensor, or of the one that is nearest to its bound.

    Attributes:
        error: Against fp64, relative, of all elements that were written.
        allowed: What it may be.
        wrong: Elements (of all tensors) that are further off than roundings explain.
        counts: Instructions, per wave.
    """

    error: float
    allowed: float
    wrong: int
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """The error as a part of what it may be; infinite where there may be none."""
        return self.error / self.allowed if self.allowed else math.inf if self.error else 0.0

    @property
    def right(self) -> bool:
        """Whether the error is within its bound, NaN is not, and so is each element."""
        return self.error <= self.allowed and not self.wrong


def compared(
    got: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, rounding: float = 0.0, smallest: float = 0.0
) -> Outcome:
    """Compare what a kernel wrote.

    Args:
        got: What it wrote.
        exact: What it should have written.
        magnitude: In units of what.
        rounding: To half precision.
        smallest: Normal number of that precision: below, roundings do not become smaller.
    """
    eps = torch.finfo(torch.float32).eps
    off = (got.double() - exact).abs()
    most = _OF_AN_ELEMENT * eps * magnitude + rounding * exact.abs().clamp_min(smallest)
    error = float(off.norm() / magnitude.norm().clamp_min(1e-300))
    return Outcome(error, _ROUNDINGS * eps + rounding, int(((off > most) | got.isnan()).sum()))


@dataclass(frozen=True)
class Task:
    """Tensors of a kernel and what is to come out.

    Attributes:
        tensors: In the kernel's order; of those it writes, what they are before where it updates them, otherwise the
            shape.
        written: Places of what it writes.
        compare: Takes those tensors afterwards, and which of their elements were written.
        updated: Places of what it changes.
    """

    tensors: Sequence[torch.Tensor]
    written: tuple[int, ...]
    compare: Callable[[list[torch.Tensor], list[torch.Tensor]], list[Outcome]]
    updated: tuple[int, ...] = ()


class Ran(NamedTuple):
    """The tensors that a run wrote, which of their elements were written, and instructions, per wave."""

    values: list[torch.Tensor]
    known: list[torch.Tensor]
    counts: Counter[str]


def run(
    program: Program,
    task: Task,
    numbers: Sequence[Any],
    grid: Group,
    threads: int,
    shared: int = 0,
    groups: Iterable[Group] | None = None,
    preloaded: bool = False,
) -> Ran:
    """Run a kernel on dense tensors.

    Args:
        program: Its assembly.
        task: Its tensors.
        numbers: Its arguments behind them.
        grid: Workgroups.
        threads: Of a group.
        shared: Bytes of LDS that a launch gives it.
        groups: Only these workgroups; all of them by default.
        preloaded: See `tools.emulator.launch`.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    memory, buffers = Memory(), []
    for place, tensor in enumerate(task.tensors):
        is_fresh = place in task.written and place not in task.updated
        raw = tensor.numel() * tensor.element_size() if is_fresh else _raw(tensor)
        buffers.append(memory.add(f"tensor {place}", raw, constant=place not in task.written))
    arguments = [*buffers, *(np.float32(number) if isinstance(number, float) else number for number in numbers)]
    counts = launch(program, memory, arguments, grid, threads, shared, groups, preloaded)
    values, known = [], []
    for place in task.written:
        tensor, kind = task.tensors[place], _NUMPY[task.tensors[place].element_size()]
        flat = torch.from_numpy(memory.contents(buffers[place], kind)).view(tensor.dtype)
        flags = torch.from_numpy(memory.written(buffers[place], kind))
        values.append(torch.as_strided(flat, tensor.shape, tensor.stride()))
        known.append(torch.as_strided(flags, tensor.shape, tensor.stride()))
    return Ran(values, known, counts)


def outcome(kernel: Kernel, task: Task, expected: int, ran: Ran) -> Outcome:
    """Return what a run of a kernel showed.

    Args:
        kernel: What was run.
        task: What is to come out.
        expected: Elements that the workgroups write, and do not update.
        ran: The run.

    Raises:
        ValueError: It did not write what it should have.
    """
    fresh = [flags for place, flags in zip(task.written, ran.known, strict=True) if place not in task.updated]
    number = sum(int(flags.sum()) for flags in fresh)
    if number != expected:
        raise ValueError(f"{kernel.name} wrote {number} elements of {expected}")
    every = task.compare(ran.values, ran.known)
    worst = max(every, key=lambda each: each.share)
    return replace(worst, wrong=sum(each.wrong for each in every), counts=ran.counts)


def share_of_multiply_adds(counts: Counter[str]) -> tuple[float, float]:
    """Return multiply-adds among the instructions of the vector unit, and LDS instructions for each of them."""
    vector = sum(times for name, times in counts.items() if name.startswith("v_"))
    multiply_adds = sum(times for name, times in counts.items() if name.startswith(_MULTIPLY_ADDS))
    lds = sum(times for name, times in counts.items() if name.startswith("ds_"))
    return multiply_adds / max(vector, 1), lds / multiply_adds if multiply_adds else 0.0


def _raw(tensor: torch.Tensor) -> Any:
    """Return a dense tensor's memory, whatever its strides."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(_BITS[tensor.element_size()]).numpy()
