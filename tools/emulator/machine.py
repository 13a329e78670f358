"""The machine: instructions decoded once, waves run block by block, branches, barriers, and a count of what ran.

Waves at the same instruction run together (see `waves`). Of several sets the one that is furthest behind runs first, so
that they meet again where their paths do; a set stops at every label while there are others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np

from . import matrix, packed, scalar, vector
from .access import Accesses
from .errors import Deadlock, EmulationError, UnknownInstruction
from .program import Instruction, Program
from .waits import Counters
from .waves import EXEC, VCC, Array, Waves, any_lane, merged

Step = Callable[[Waves], None]

# What changes nothing that a program computes, each with the reason.
IGNORED: Final = {
    "s_nop": "idle cycles: hazards between instructions are the compiler's and the assembler's affair",
    "s_delay_alu": "a hint for the scheduler of gfx11 and newer",
    "s_wait_alu": "a dependency between units of gfx12 that results here never lag behind",
    "s_waitcnt_depctr": "the same on gfx10 and gfx11",
    "s_clause": "groups memory instructions",
    "s_sleep": "time",
    "s_setprio": "priority of the wave",
    "s_inst_prefetch": "instruction cache",
    "s_set_inst_prefetch_distance": "instruction cache",
    "s_icache_inv": "instruction cache",
    "s_prefetch_inst": "instruction cache",
    "s_dcache_inv": "scalar cache: memory here has none",
    "s_dcache_wb": "scalar cache",
    "s_gl1_inv": "vector cache: memory here has none",
    "buffer_gl0_inv": "vector cache",
    "buffer_gl1_inv": "vector cache",
    "buffer_inv": "vector cache",
    "buffer_wbl2": "vector cache",
    "buffer_wbinvl1": "vector cache",
    "buffer_wbinvl1_vol": "vector cache",
    "global_inv": "vector cache",
    "global_wb": "vector cache",
    "global_wbinv": "vector cache",
    "s_sendmsg": "gives registers back before the end",
    "s_round_mode": "refused unless it is to nearest, the mode of the launch",
    "s_denorm_mode": "refused unless it keeps denormals, the mode of the launch",
    "s_ttracedata": "tracing",
    "s_code_end": "behind the end",
}
# The only messages and modes that may be ignored.
_ALLOWED: Final = {
    "s_sendmsg": ("sendmsg(MSG_DEALLOC_VGPRS)",),
    "s_round_mode": ("0x0", "0"),
    "s_denorm_mode": ("0xf", "15"),
}
_MEMORY: Final = ("s_load", "global_", "flat_", "scratch_", "buffer_", "ds_")
_BRANCHES: Final[dict[str, Callable[[Waves], Array]]] = {
    "s_branch": lambda waves: np.ones(waves.count, bool),
    "s_cbranch_scc0": lambda waves: ~waves.scc,
    "s_cbranch_scc1": lambda waves: waves.scc,
    "s_cbranch_vccz": lambda waves: ~any_lane(waves, VCC),
    "s_cbranch_vccnz": lambda waves: any_lane(waves, VCC),
    "s_cbranch_execz": lambda waves: ~any_lane(waves, EXEC),
    "s_cbranch_execnz": lambda waves: any_lane(waves, EXEC),
}
_BARRIERS: Final = ("s_barrier", "s_barrier_wait")


class Machine:
    """A program, ready to run waves of it."""

    def __init__(self, program: Program, accesses: Accesses, counters: Counters) -> None:
        self._program, self._accesses, self._counters = program, accesses, counters
        starts = {0, *program.labels.values()}
        for index, instruction in enumerate(program.instructions):
            if instruction.name in _BRANCHES or instruction.name in (*_BARRIERS, "s_endpgm"):
                starts |= {index, index + 1}
        self._starts = frozenset(starts)
        self._steps: list[Step | None] = [None] * len(program.instructions)
        self._ran = np.zeros(len(program.instructions), np.int64)

    def run(self, waves: Waves) -> Counter[str]:
        """Run waves to their end; return how often each instruction was issued, per wave.

        Raises:
            EmulationError: The program did something wrong; the message has the line.
        """
        ready, waiting = [waves], []  # type: tuple[list[Waves], list[Waves]]
        with np.errstate(all="ignore"):
            while ready or waiting:
                if not ready:
                    raise Deadlock(
                        f"{sum(w.count for w in waiting)} waves wait at a barrier for others that have ended"
                    )
                pc = min(each.pc for each in ready)
                current = merged([each for each in ready if each.pc == pc])
                ready = [each for each in ready if each.pc != pc]
                for each in self._block(current, waiting):
                    ready.append(each)
        return self._counts()

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for instruction, times in zip(self._program.instructions, self._ran, strict=True):
            for part in instruction.pair or (instruction,):
                if times:
                    counts[part.name] += int(times)
            if instruction.pair and times:
                counts["vopd"] += int(times)
        return counts

    def _block(self, waves: Waves, waiting: list[Waves]) -> list[Waves]:
        """Run up to the next label, branch, barrier or end; return the sets of waves that go on."""
        instructions, steps, count = self._program.instructions, self._steps, waves.count
        while True:
            pc = waves.pc
            if pc >= len(instructions):
                raise EmulationError("ran past the last instruction")
            instruction = instructions[pc]
            self._ran[pc] += count
            try:
                if instruction.name in _BRANCHES:
                    return self._branch(waves, instruction)
                if instruction.name == "s_endpgm":
                    return []
                if instruction.name in _BARRIERS:
                    return self._barrier(waves, waiting)
                step = steps[pc]
                if step is None:
                    step = steps[pc] = self._decode(instruction)
                step(waves)
            except EmulationError as error:
                raise type(error)(f"line {instruction.line}, {instruction.text!r}: {error}") from None
            waves.pc = pc + 1
            if waves.pc in self._starts:
                return [waves]

    def _branch(self, waves: Waves, instruction: Instruction) -> list[Waves]:
        label = instruction.operands[0]
        if label not in self._program.labels:
            raise UnknownInstruction(f"no label {label}")
        taken = _BRANCHES[instruction.name](waves)
        target, following = self._program.labels[label], waves.pc + 1
        if taken.all() or not taken.any():
            waves.pc = target if taken.all() else following
            return [waves]
        there, here = waves.parts(taken)
        there.pc, here.pc = target, following
        return [there, here]

    def _barrier(self, waves: Waves, waiting: list[Waves]) -> list[Waves]:
        """Hold waves until all of their group that have not ended are here."""
        name = self._program.instructions[waves.pc].name
        if name == "s_barrier_wait" and not waves.signalled.all():
            raise Deadlock("waits for a barrier that it has not signalled")
        if name == "s_barrier":
            self._counters.stores_are_finished(waves)
        held = merged([waves, *(each for each in waiting if each.pc == waves.pc)])
        waiting[:] = [each for each in waiting if each.pc != waves.pc]
        here = np.bincount(held.group, minlength=len(self._group_sizes))
        complete = (here == self._group_sizes)[held.group]
        if not complete.any():
            waiting.append(held)
            return []
        if not complete.all():
            held, others = held.parts(complete)
            waiting.append(others)
        held.pc += 1
        held.epoch += 1
        held.signalled[:] = False
        return [held]

    def groups(self, sizes: Array) -> None:
        """Say how many waves each group has."""
        self._group_sizes = sizes

    def _decode(self, instruction: Instruction) -> Step:
        name = instruction.name
        if name in IGNORED:
            if name in _ALLOWED and instruction.operands[0] not in _ALLOWED[name]:
                raise UnknownInstruction(f"{name} {instruction.operands[0]}")
            return lambda waves: None
        if name.startswith(("s_waitcnt", "s_wait_")):
            return self._counters.wait(instruction)
        if name == "s_barrier_signal":
            return self._signal
        if name == "vopd":
            return vector.decode_pair(instruction, self._program)
        if name.startswith(_MEMORY):
            return self._accesses.decode(instruction)
        if name.startswith("s_"):
            return scalar.decode(instruction)
        if matrix.knows(name):
            return matrix.decode(instruction, self._program)
        if packed.knows(name):
            return packed.decode(instruction)
        if name.startswith("v_"):
            return vector.decode(instruction, self._program)
        raise UnknownInstruction(f"unknown instruction {name}")

    def _signal(self, waves: Waves) -> None:
        self._counters.stores_are_finished(waves)
        waves.signalled[:] = True
