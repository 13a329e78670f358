"""A launch: registers as the hardware sets them up for a kernel, then all of its waves.

Initial registers: LLVM, "User Guide for AMDGPU Backend", Initial Kernel Execution State; the kernel's descriptor says
which of them it wants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from .access import SCRATCH, Accesses
from .errors import UnknownInstruction
from .machine import Machine
from .memory import Buffer, Memory, Parts
from .pieces import smallest
from .program import PRELOADED, Program
from .waits import Counters
from .waves import TTMP, Waves

# What a launch can give, in the order in which the hardware fills registers.
_USER: Final = (
    "private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id", "flat_scratch_init",
    "private_segment_size",
)  # fmt: skip
# The only floating-point modes that the tables compute in: to nearest, denormals kept, no traps.
_MODES: Final = {
    "float_round_mode_32": 0, "float_round_mode_16_64": 0, "float_denorm_mode_32": 3, "float_denorm_mode_16_64": 3,
    "fp16_overflow": 0,
}  # fmt: skip
# Generations of targets that give the three numbers of a work item in one register.
_PACKED_IDS: Final = ("gfx90a", "gfx942", "gfx950", "gfx11", "gfx12")

Argument = Buffer | int | np.generic
Size = tuple[int, int, int]


def launch(
    program: Program,
    memory: Memory,
    arguments: Sequence[Argument],
    grid: Size,
    threads: int,
    dynamic_lds: int = 0,
    groups: Iterable[Size] | None = None,
    preloaded: bool = False,
) -> Counter[str]:
    """Run a kernel.

    Args:
        program: The kernel.
        memory: Its buffers.
        arguments: In the kernel's order: buffers, integers, numbers of numpy.
        grid: Workgroups in three dimensions.
        threads: Work items of a group, in one dimension.
        dynamic_lds: Bytes of LDS beside those that the kernel declares.
        groups: Only these workgroups of the grid; all of them by default.
        preloaded: Enter as firmware does that has put the first arguments into registers.

    Returns:
        How often each instruction was issued, per wave.

    Raises:
        ValueError: The kernel has no entry for preloaded arguments, or other arguments.
        EmulationError: The program did something wrong, or has an instruction that is not known.
    """
    _check_modes(program)
    wave_size = program.wave_size
    per_group = -(-threads // wave_size)
    chosen = (
        list(groups)
        if groups is not None
        else [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    )
    group = np.repeat(np.arange(len(chosen)), per_group)
    counters = Counters(program.generation)
    contents = _segment(program, arguments, grid, threads, dynamic_lds)
    segment = memory.add("arguments", contents, constant=True)
    memory.seal(smallest(program, ("global_", "buffer_")), group, counters.late)
    lds_size = program.descriptor.get("group_segment_fixed_size", 0) + dynamic_lds
    lds = Parts("LDS", lds_size, len(chosen), smallest(program, ("ds_",)))
    scratch_size = program.descriptor.get("private_segment_fixed_size", 0)
    scratch = Parts("scratch", scratch_size, len(group) * wave_size, smallest(program, ("scratch_", "buffer_")))
    waves = Waves(np.arange(len(group)), group, wave_size, counters.count)
    _set_up(waves, program, segment, np.array(chosen), per_group, threads)
    if preloaded:
        _preload(waves, program, contents.view(np.uint32))
    accesses = Accesses(memory, lds, scratch, counters, program)
    return Machine(program, accesses, counters, np.full(len(chosen), per_group)).run(waves)


def _check_modes(program: Program) -> None:
    for name, wanted in _MODES.items():
        if program.descriptor.get(name, wanted) != wanted:
            raise UnknownInstruction(f"a kernel with .amdhsa_{name} {program.descriptor[name]}: only {wanted} is known")


def _segment(program: Program, arguments: Sequence[Argument], grid: Size, threads: int, dynamic_lds: int) -> Any:
    """Return the argument segment, with what the runtime adds to it."""
    size = program.descriptor.get("kernarg_size", 0)
    segment = np.zeros(-(-(size + 4) // 16) * 16, np.uint8)
    given = list(arguments)
    hidden = {
        **{f"hidden_block_count_{axis}": number for axis, number in zip("xyz", grid, strict=True)},
        **{f"hidden_group_size_{axis}": number for axis, number in zip("xyz", (threads, 1, 1), strict=True)},
        "hidden_grid_dims": 1,
        "hidden_dynamic_lds_size": dynamic_lds,
    }
    for argument in program.arguments:
        value: Argument
        if argument.kind.startswith("hidden_"):
            value = hidden.get(argument.kind, 0)
        elif given:
            value = given.pop(0)
        elif argument.kind == "global_buffer":
            value = 0  # pointers that Triton adds for itself and that no kernel here uses
        else:
            raise ValueError(f"{program.name} has {len(program.arguments)} arguments, {len(arguments)} were given")
        if isinstance(value, Buffer):
            raw = value.address.to_bytes(8, "little")
        elif isinstance(value, np.generic):
            raw = value.tobytes()
        else:
            raw = (value & ((1 << (8 * argument.size)) - 1)).to_bytes(argument.size, "little")
        segment[argument.offset : argument.offset + argument.size] = np.frombuffer(raw, np.uint8)
    if given:
        raise ValueError(f"{len(given)} arguments too many for {program.name}")
    return segment


def _set_up(waves: Waves, program: Program, segment: Buffer, groups: Any, per_group: int, threads: int) -> None:
    wants, scalars = program.descriptor, waves.scalars
    values = {
        "private_segment_buffer": (SCRATCH & 0xFFFFFFFF, SCRATCH >> 32, 0xFFFFFFFF, 0),
        "kernarg_segment_ptr": (segment.address & 0xFFFFFFFF, segment.address >> 32),
        "flat_scratch_init": (0, 0),
        "private_segment_size": (wants.get("private_segment_fixed_size", 0),),
    }
    register = 0
    for name in _USER:
        if wants.get(f"user_sgpr_{name}"):
            if name not in values:
                raise UnknownInstruction(f"a kernel that wants its {name}")
            for value in values[name]:
                scalars[register] = value
                register += 1
    # Behind them are those that may be filled with arguments, see `_preload`.
    register = max(register, wants.get("user_sgpr_count", register))
    ids = groups[waves.group].T.astype(np.uint32)
    if program.generation >= 12:
        scalars[TTMP + 9] = ids[0]
        scalars[TTMP + 7] = ids[1] | (ids[2] << np.uint32(16))
    else:
        for axis, number in zip("xyz", ids, strict=True):
            if wants.get(f"system_sgpr_workgroup_id_{axis}"):
                scalars[register] = number
                register += 1
        if wants.get("system_sgpr_private_segment_wavefront_offset") or wants.get("enable_private_segment"):
            scalars[register] = 0  # scratch here is each lane's own
    item = np.arange(waves.lanes) + waves.lanes * (waves.wave % per_group)[:, None]
    waves.vectors[0] = item
    if not program.target.startswith(_PACKED_IDS):
        waves.vectors[1 : 1 + wants.get("system_vgpr_workitem_id", 0)] = 0
    if threads % waves.lanes:
        waves.set_exec(item < threads)


def _preload(waves: Waves, program: Program, segment: Any) -> None:
    """Fill the last of the user's registers with arguments, and enter after the loads of them."""
    if program.preloaded_entry is None:
        raise ValueError(f"{program.name} has no entry for preloaded arguments")
    count, offset = program.descriptor[PRELOADED], program.descriptor.get("user_sgpr_kernarg_preload_offset", 0)
    first = program.descriptor["user_sgpr_count"] - count
    waves.scalars[first : first + count] = segment[offset : offset + count, None]
    waves.pc = program.preloaded_entry
