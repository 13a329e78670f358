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
from .errors import Deadlock, EmulationError, Endless, UnknownInstruction
from .program import Instruction, Program
from .waits import LOAD, STORE, Counters
from .waves import EXEC, VCC, Array, Waves, any_lane, merged

Step = Callable[[Waves], None]

# What changes nothing that a program computes.
IGNORED: Final = (
    "s_nop",  # idle cycles: hazards between instructions are the compiler's and the assembler's affair
    "s_delay_alu", "s_clause", "s_setprio", "s_inst_prefetch", "s_set_inst_prefetch_distance",  # hints and priorities
    "s_wait_alu", "s_waitcnt_depctr",  # dependencies between units that results here never lag behind
    "buffer_gl0_inv", "global_inv", "global_wb",  # caches: memory here has none, but some count as loads or stores
    "s_sendmsg",  # gives registers back before the end
)  # fmt: skip
# On gfx12.
_COUNTED: Final = {"global_inv": LOAD, "global_wb": STORE}
# The only barrier that is known, as it is printed: that of the workgroup.
_WORKGROUP: Final = ("-1", "0xffff")
_MEMORY: Final = ("s_load", "global_", "scratch_", "buffer_", "ds_")


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
# Blocks that sets of waves run in a launch; ten times what the longest kernels here need.
MOST_BLOCKS: Final = 1_000_000


class Machine:
    """A program, ready to run waves of it."""

    def __init__(self, program: Program, accesses: Accesses, counters: Counters, group_sizes: Array) -> None:
        """Take what a launch has made.

        Args:
            program: The kernel.
            accesses: Its memory.
            counters: What is under way.
            group_sizes: How many waves each workgroup has.
        """
        self._program, self._accesses, self._counters = program, accesses, counters
        self._group_sizes = group_sizes
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
        ready, waiting, blocks = [waves], [], 0  # type: tuple[list[Waves], list[Waves], int]
        with np.errstate(all="ignore"):
            while ready or waiting:
                if not ready:
                    left = sum(each.count for each in waiting)
                    raise Deadlock(f"{left} waves wait at a barrier for others that have ended")
                blocks += 1
                if blocks > MOST_BLOCKS:
                    where = self._program.instructions[ready[0].pc]
                    raise Endless(f"no end after {MOST_BLOCKS} blocks, at line {where.line}, {where.text!r}")
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
                    step = steps[pc] = self._readable(instruction)
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
        """Hold waves until all of their group are at a barrier, which need not be the same instruction.

        The hardware does not wait for waves that have ended. A kernel that counts on it is not one that Triton makes.
        """
        instruction = self._program.instructions[waves.pc]
        if instruction.name == "s_barrier_wait":
            _only_the_workgroup(instruction)
            if not waves.signalled.all():
                raise Deadlock("waits for a barrier that it has not signalled")
        else:
            self._counters.at_barrier(waves)
        waiting.append(waves)
        at_barriers = np.concatenate([each.group for each in waiting])
        complete = np.bincount(at_barriers, minlength=len(self._group_sizes)) == self._group_sizes
        held, free = [], []  # type: tuple[list[Waves], list[Waves]]
        for each in waiting:
            choose = complete[each.group]
            if choose.all():
                free.append(each)
            elif choose.any():
                chosen, others = each.parts(choose)
                free.append(chosen)
                held.append(others)
            else:
                held.append(each)
        waiting[:] = held
        for each in free:
            each.pc += 1
            each.epoch += 1
            each.signalled[:] = False
        return free

    def _readable(self, instruction: Instruction) -> Step:
        """Decode; operands that are missing or are no numbers are as unknown as others."""
        try:
            return self._decode(instruction)
        except (AssertionError, IndexError, KeyError, ValueError) as error:
            raise UnknownInstruction(f"cannot read it: {type(error).__name__} {error}") from error

    def _decode(self, instruction: Instruction) -> Step:
        name = instruction.name
        if name in IGNORED:
            if name == "s_sendmsg" and instruction.operands != ("sendmsg(MSG_DEALLOC_VGPRS)",):
                raise UnknownInstruction(f"another message: {instruction.text}")
            if name in _COUNTED:
                kind = _COUNTED[name]
                return lambda waves: self._counters.issue(waves, kind)
            return lambda waves: None
        if name.startswith(("s_waitcnt", "s_wait_")):
            return self._counters.wait(instruction)
        if name == "s_barrier_signal":
            _only_the_workgroup(instruction)
            return self._signal
        if name == "vopd":
            return vector.decode_pair(instruction, self._program)
        if name.startswith(_MEMORY):
            return self._accesses.decode(instruction)
        if name.startswith(("s_", "v_s_")):
            return scalar.decode(instruction)
        if matrix.knows(name):
            return matrix.decode(instruction, self._program)
        if packed.knows(name):
            return packed.decode(instruction)
        if name.startswith("v_"):
            return vector.decode(instruction, self._program)
        raise UnknownInstruction(f"unknown instruction {name}")

    def _signal(self, waves: Waves) -> None:
        self._counters.at_barrier(waves)
        if waves.signalled.any():
            raise Deadlock("signals a barrier again that it has not waited for")
        waves.signalled[:] = True


def _only_the_workgroup(instruction: Instruction) -> None:
    if instruction.operands not in [(name,) for name in _WORKGROUP]:
        raise UnknownInstruction(f"another barrier than the workgroup's: {instruction.text}")
