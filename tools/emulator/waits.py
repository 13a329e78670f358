"""Counters of memory instructions under way, and the waits for them.

An instruction that loads raises its counter at once and its result comes later: the registers it writes are marked
until the wave has waited for it (`s_waitcnt`, gfx12: `s_wait_*`), and using a marked register ends the run. Loads of
one kind are counted down in the order of their issue; scalar loads are not, so that only a wait for zero is a wait for
them (RDNA3 ISA, 5.6 "Data Dependency Resolution").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from .errors import NotWaitedFor, UnknownInstruction
from .program import Instruction
from .waves import Register, Waves

LOAD, STORE, LDS, SCALAR = "load", "store", "lds", "scalar"
# By generation, what the counters count; a wait names counters by the words of its generation.
COUNTERS: Final[dict[int, dict[str, tuple[str, ...]]]] = {
    9: {"vmcnt": (LOAD, STORE), "lgkmcnt": (LDS, SCALAR)},
    10: {"vmcnt": (LOAD,), "vscnt": (STORE,), "lgkmcnt": (LDS, SCALAR)},
    11: {"vmcnt": (LOAD,), "vscnt": (STORE,), "lgkmcnt": (LDS, SCALAR)},
    12: {"loadcnt": (LOAD,), "storecnt": (STORE,), "dscnt": (LDS,), "kmcnt": (SCALAR,)},
}
# Counters of what no kernel here does: exports, samples, ray tracing. A wait for them waits for nothing.
_UNUSED: Final = ("expcnt", "samplecnt", "bvhcnt")

Step = Callable[[Waves], None]


class Counters:
    """The counters of one generation."""

    def __init__(self, generation: int) -> None:
        self._names = list(COUNTERS[generation])
        self._of = {kind: self._names.index(name) for name, kinds in COUNTERS[generation].items() for kind in kinds}
        self.count = len(self._names)
        self._generation = generation
        self.late: set[tuple[int, int]] = set()  # see `at_barrier`

    def issue(self, waves: Waves, kind: str, registers: Iterable[Register] = (), memory: bool = True) -> None:
        """Count an instruction, and mark the registers that it will write.

        Args:
            waves: That issue it.
            kind: Which counter it is in.
            registers: That it will write.
            memory: Whether it reads or writes memory. Lanes that exchange values (`ds_swizzle_b32`, `ds_permute_b32`,
                `ds_bpermute_b32`) go through the hardware of LDS, and so are in its counter, but touch none of its
                memory (ISA of CDNA 3, DS_SWIZZLE_B32: "no data is written to LDS memory"; DS_PERMUTE_B32: "does not
                access LDS memory"): other waves cannot meet them there, and they may be under way at a barrier.
        """
        counter = self._of[kind]
        waves.issued[counter] += 1
        number = waves.issued[counter].copy()
        for register in registers:
            waves.pending.setdefault(register, {})[counter] = number
        if kind == SCALAR:
            waves.unordered = number
        elif kind == LDS and memory:
            waves.stored = number
        elif kind == STORE:
            waves.saved = number

    def may_load_into(self, waves: Waves, kind: str, registers: Iterable[Register], half: bool = False) -> None:
        """Check that a load into registers comes after what is under way into them.

        Vector loads of one kind come in their order, so that a whole register is the later one's, and one load may
        fill the half that another leaves (ISA of CDNA, 4.4: they "return in the order they were issued"). RDNA3 ISA,
        5.6, and RDNA4 ISA, 5.7.1, take that back for what they write: "It is possible for data to be written to VGPRs
        out-of-order". LLVM still counts on the order before gfx12 (llvm/llvm-project, pull request 105549), but takes
        the load of a half for a use of the register, and waits. So loads of halves need a wait from gfx11 on here, and
        those of whole registers from gfx12 on.

        Args:
            waves: That load.
            kind: Of load.
            registers: That it will write.
            half: Whether it writes a half of a register and leaves the other.
        """
        in_order = kind != SCALAR and self._generation < (11 if half else 12)
        for register in registers:
            if not in_order or set(waves.pending.get(register, ())) != {self._of[kind]}:
                waves.use(register)
            waves.pending.pop(register, None)

    def at_barrier(self, waves: Waves) -> None:
        """Check that no access to LDS memory is under way at a barrier: behind it others write, and read the written.

        Stores to global memory may be: others in the group seldom read them. Where they do, the memory finds the wave
        and the barrier in `late`.

        Raises:
            NotWaitedFor: An access to LDS memory is.
        """
        if (waves.stored > waves.finished[self._of[LDS]]).any():
            raise NotWaitedFor("a barrier is reached with accesses to LDS memory that were not waited for")
        for index in np.flatnonzero(waves.saved > waves.finished[self._of[STORE]]):
            self.late.add((int(waves.wave[index]), int(waves.epoch[index])))

    def wait(self, instruction: Instruction) -> Step:
        """Return the step of a wait."""
        given = [(name, count) for name, count in _wanted(instruction) if name not in _UNUSED]
        if unknown := [name for name, _ in given if name not in self._names]:
            raise UnknownInstruction(f"no counter {', '.join(unknown)} here: there are {', '.join(self._names)}")
        wanted = [(self._names.index(name), count) for name, count in given]
        scalar = self._of[SCALAR]

        def step(waves: Waves) -> None:
            for counter, left in wanted:
                finished = waves.issued[counter] - left
                if left and counter == scalar:
                    # Any of the loads may be the one that is left.
                    finished = np.where(waves.unordered > waves.finished[counter], 0, finished)
                np.maximum(waves.finished[counter], finished, out=waves.finished[counter])

        return step


def _wanted(instruction: Instruction) -> list[tuple[str, int]]:
    """Return the counters that a wait names, each with how many may be left."""
    name, operands = instruction.name, instruction.operands
    if name == "s_waitcnt":
        found = [re.fullmatch(r"(\w+)\((\d+)\)", operand) for operand in operands]
        if found and all(found):
            return [(match[1], int(match[2])) for match in found if match]
    elif name.startswith("s_waitcnt_") and operands[:1] == ("null",):
        return [(name.removeprefix("s_waitcnt_"), int(operands[1], 0))]
    elif name.endswith("cnt_dscnt"):
        both = int(operands[0], 0)  # six bits each
        return [(name.removeprefix("s_wait_").removesuffix("_dscnt"), both >> 8), ("dscnt", both & 0x3F)]
    elif name.startswith("s_wait_") and operands:
        return [(name.removeprefix("s_wait_"), int(operands[0], 0))]
    raise UnknownInstruction(f"a wait that cannot be read: {instruction.text}")
