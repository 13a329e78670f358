"""A kernel of BatchNorm or of a loss run on tensors, several of which it may write or change, compared with fp64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from tools.compared import WritingTask
from tools.emulator import Memory, Program, launch
from tools.kernel import Group, Kernel
from tools.norm_kernels import elements_written, task

_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY: Final[dict[int, Any]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class Found(NamedTuple):
    """What a run showed: as in `tools.emulate_kernels.Outcome`."""

    error: float
    allowed: float
    wrong: int
    counts: Counter[str]


def run_norm(
    kernel: Kernel, program: Program, numbers: Sequence[Any], shared: int, groups: Sequence[Group], preloaded: bool
) -> Found:
    """Run workgroups of a kernel of BatchNorm; see `run_task`."""
    expected = elements_written(kernel, groups)
    return run_task(kernel, task(kernel), expected, program, numbers, shared, groups, preloaded)


def run_task(
    kernel: Kernel,
    given: WritingTask,
    expected: int,
    program: Program,
    numbers: Sequence[Any],
    shared: int,
    groups: Sequence[Group],
    preloaded: bool,
) -> Found:
    """Run workgroups of a kernel.

    Args:
        kernel: What was compiled.
        given: Its tensors, and what is to come out.
        expected: Elements that the workgroups write, and do not update.
        program: Its assembly.
        numbers: Its arguments behind the tensors.
        shared: Bytes of LDS that a launch gives it.
        groups: The workgroups.
        preloaded: See `tools.emulator.launch`.

    Raises:
        EmulationError: The kernel did something that it must not do.
        ValueError: It did not write what it should have.
    """
    memory, buffers = Memory(), []
    fresh = [place for place in given.written if place not in given.updated]
    for place, tensor in enumerate(given.tensors):
        raw = tensor.numel() * tensor.element_size() if place in fresh else _raw(tensor)
        buffers.append(memory.add(f"tensor {place}", raw, constant=place not in given.written))
    arguments = [*buffers, *(np.float32(number) if isinstance(number, float) else number for number in numbers)]
    threads = kernel.call.warps * program.wave_size
    counts = launch(program, memory, arguments, kernel.call.grid, threads, shared, groups, preloaded)
    got: list[torch.Tensor] = []
    known: list[torch.Tensor] = []
    for place in given.written:
        tensor, kind = given.tensors[place], _NUMPY[given.tensors[place].element_size()]
        values = torch.from_numpy(memory.contents(buffers[place], kind)).view(tensor.dtype)
        flags = torch.from_numpy(memory.written(buffers[place], kind))
        got.append(torch.as_strided(values, tensor.shape, tensor.stride()))
        known.append(torch.as_strided(flags, tensor.shape, tensor.stride()))
    number = sum(int(flags.sum()) for place, flags in zip(given.written, known, strict=True) if place in fresh)
    if number != expected:
        raise ValueError(f"{kernel.name} wrote {number} elements of {expected}")
    compared = given.compare(got, known)
    worst = max(compared, key=lambda each: each.error / each.allowed)
    return Found(worst.error, worst.allowed, sum(each.wrong for each in compared), counts)


def _raw(tensor: torch.Tensor) -> Any:
    """Return a dense tensor's memory, whatever its strides."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(_BITS[tensor.element_size()]).numpy()
