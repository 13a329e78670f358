"""A kernel's assembly run on tensors, and what is in its output afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from tools.emulator import Buffer, Memory, Program, launch

Size = tuple[int, int, int]
_BITS: Final = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
_NUMPY: Final[dict[torch.dtype, Any]] = {torch.int32: np.int32, torch.int16: np.int16}


class Output(NamedTuple):
    """The one tensor that a kernel writes: its last.

    Attributes:
        shape: Of the tensor.
        strides: In elements; it is dense.
        dtype: Of an element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class Ran(NamedTuple):
    """What a run has left.

    Attributes:
        values: The output.
        known: Which of its elements were written.
        counts: Instructions, per wave.
    """

    values: torch.Tensor
    known: torch.Tensor
    counts: Counter[str]


def run(
    program: Program,
    inputs: Mapping[str, torch.Tensor],
    output: Output,
    numbers: Sequence[int],
    grid: Size,
    warps: int,
    shared: int,
    groups: Iterable[Size] | None = None,
    preloaded: bool = False,
) -> Ran:
    """Run a kernel on dense tensors.

    Args:
        program: Its assembly.
        inputs: Tensors in its order, none of which it may write.
        output: What it writes.
        numbers: Its arguments behind the tensors.
        grid: Workgroups.
        warps: Waves of a group.
        shared: Bytes of LDS that a launch gives it.
        groups: Only these workgroups; all of them by default.
        preloaded: See `launch`.

    Raises:
        EmulationError: The kernel did something that it must not do.
    """
    memory, bits = Memory(), _BITS[output.dtype]
    given = [memory.add(name, _raw(tensor), constant=True) for name, tensor in inputs.items()]
    size = torch.empty((), dtype=output.dtype).element_size()
    buffer = memory.add("output", int(np.prod(output.shape)) * size)
    arguments: list[Buffer | int] = [*given, buffer, *numbers]
    counts = launch(program, memory, arguments, grid, warps * program.wave_size, shared, groups, preloaded)
    values = torch.from_numpy(memory.contents(buffer, _NUMPY[bits])).view(output.dtype)
    known = torch.from_numpy(memory.written(buffer, _NUMPY[bits]))
    values, known = (torch.as_strided(flat, output.shape, output.strides) for flat in (values, known))
    return Ran(values, known, counts)


def _raw(tensor: torch.Tensor) -> Any:
    """Return a dense tensor's memory, whatever its strides."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return flat.view(_BITS[tensor.dtype]).numpy()
