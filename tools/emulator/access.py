"""Memory instructions: scalar loads, global, scratch and buffer accesses, LDS.

Addresses and offsets: RDNA3 ISA, chapters 8 (scalar), 9 (buffer), 11 (global, scratch) and 12 (LDS). Loads write
their registers at once and mark them until they are waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from .errors import MemoryFault, UnknownInstruction
from .lds import LdsAccesses
from .memory import Memory, Parts
from .operands import no_modifiers, place, register, registers, scalar_reader, vector_reader, whole, write_scalars
from .pieces import check_alignment, fill, piece, place_of, take
from .program import Instruction, Program
from .store import Lanes, Store
from .waits import LOAD, SCALAR, STORE, Counters
from .waves import Array, Waves

Step = Callable[[Waves], None]
# Cache policies change when a value is seen, never which, in memory without caches.
_POLICIES: Final = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope")
# Addresses in a buffer descriptor that mean the lane's own scratch.
SCRATCH: Final = 0x5C4A7C000000
_SCALAR_WORDS: Final = {
    "dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16,
    "b32": 1, "b64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16,
}  # fmt: skip


class Place(NamedTuple):
    """Where the lanes of an access go.

    Attributes:
        store: The memory.
        offset: Of each lane in it.
        inside: Which lanes it reaches; None for all. The others read zero and write nothing.
    """

    store: Store
    offset: Array
    inside: Array | None = None


Locate = Callable[[Waves, Lanes], Place]


def _checked_as_raw(word: Array) -> Array:
    """Return for each wave's descriptor without a stride whether offsets are held against its size (OOB_SELECT).

    From gfx10 on word 3 says how. Against the stride, which is 0, everything is outside: loads give 0, stores do
    nothing (RDNA2 ISA, 8.1.8 "Memory Buffer Resource").

    Raises:
        UnknownInstruction: It says something else.
    """
    select = (word >> np.uint64(28)) & np.uint64(3)
    if not np.isin(select, (0, 3)).all():
        raise UnknownInstruction(f"a buffer's descriptor with OOB_SELECT {int(select[0])}")
    return np.asarray(select == 3)


def _read(where: Place, size: int, lanes: Lanes) -> Array:
    """Return the bytes that lanes load; zero for those that are outside of a buffer."""
    if where.inside is None or where.inside.all():
        return where.store.read(where.offset, size, lanes)
    values = np.zeros((len(lanes.index), size), np.uint8)
    if where.inside.any():
        values[where.inside] = where.store.read(where.offset[where.inside], size, lanes.some(where.inside))
    return values


class Accesses:
    """Memory instructions of one launch."""

    def __init__(self, memory: Memory, lds: Parts, scratch: Parts, counters: Counters, program: Program) -> None:
        """Take the memories.

        Args:
            memory: Global memory.
            lds: A part for each workgroup.
            scratch: A part for each lane.
            counters: What is under way.
            program: What is run.
        """
        self._memory, self._scratch, self._counters = memory, scratch, counters
        self._generation, self._keeps_halves = program.generation, program.keeps_halves
        self._lds = LdsAccesses(lds, counters, program.keeps_halves)

    def decode(self, instruction: Instruction) -> Step:
        """Return what a memory instruction does."""
        name = instruction.name
        if name.startswith("s_load"):
            return self._scalar_load(instruction)
        if name.startswith("ds_"):
            return self._lds.decode(instruction)
        no_modifiers(instruction.modifiers, "offset", "offen", *_POLICIES)
        kind, _, rest = name.partition("_")
        verb, _, size = rest.partition("_")
        if kind not in ("global", "scratch", "buffer") or verb not in ("load", "store"):
            raise UnknownInstruction(f"unknown instruction {name}")
        what = piece(size, self._keeps_halves)
        data = instruction.operands[0] if verb == "load" or kind == "buffer" else instruction.operands[1]
        first, keys = place_of(data, what.size)
        locate = self._location(instruction, kind, verb == "load", what.size)
        counters = self._counters

        def load(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            where = locate(waves, lanes)
            counters.may_load_into(waves, LOAD, keys, half=what.half is not None)
            if len(lanes.index):
                fill(waves, first, lanes, _read(where, what.size, lanes), what)
            counters.issue(waves, LOAD, keys)

        def save(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            where = locate(waves, lanes)
            values = take(waves, first, keys, lanes, what)
            offset, inside = where.offset, where.inside
            if inside is not None:
                offset, values, lanes = offset[inside], values[inside], lanes.some(inside)
            if len(lanes.index):
                where.store.write(offset, values, lanes)
            counters.issue(waves, STORE)

        return load if verb == "load" else save

    def _location(self, instruction: Instruction, kind: str, load: bool, size: int) -> Locate:
        """Return where an access goes. Under amdhsa these may be unaligned."""
        constant = whole(instruction.modifiers.get("offset"))
        operands = instruction.operands
        if kind == "buffer":
            return self._buffer_location(instruction, constant, size)
        address, base = (operands[1] if load else operands[0]), (operands[2] if len(operands) > 2 else "off")
        if kind == "scratch":
            return self._scratch_location(address, base, constant, size)
        if base in ("off", "null"):
            read = vector_reader(address, "u64")
            add = None
        else:
            # The offset in the vector register is unsigned, 32 bits.
            read, add = vector_reader(address, "u32"), scalar_reader(base, "u64")

        def locate(waves: Waves, lanes: Lanes) -> Place:
            addresses = np.broadcast_to(read(waves), waves.active.shape)[lanes.index, lanes.lane].astype(np.uint64)
            if add is not None:
                addresses = addresses + add(waves)[lanes.index]
            addresses = addresses + np.uint64(constant & ((1 << 64) - 1))
            return Place(self._memory.store, self._memory.offset(addresses))

        return locate

    def _scratch_location(self, address: str, base: str, constant: int, size: int) -> Locate:
        read = None if address == "off" else vector_reader(address, "u32")
        add = None if base == "off" else scalar_reader(base, "u32")

        def locate(waves: Waves, lanes: Lanes) -> Place:
            local = np.full(len(lanes.index), constant, np.int64)
            if read is not None:
                local = local + np.broadcast_to(read(waves), waves.active.shape)[lanes.index, lanes.lane].view(np.int32)
            if add is not None:
                local = local + np.broadcast_to(add(waves), waves.scc.shape)[lanes.index].view(np.int32)
            return Place(self._scratch.store, self._in_scratch(waves, lanes, local, size))

        return locate

    def _in_scratch(self, waves: Waves, lanes: Lanes, local: Array, size: int) -> Array:
        return self._scratch.offset(lanes.wave.astype(np.int64) * waves.lanes + lanes.lane, local, size)

    def _buffer_location(self, instruction: Instruction, constant: int, size: int) -> Locate:
        """Return where an access of a raw buffer goes: base and size are in a descriptor of four registers.

        What lies behind its end reads zero and is not written: compilers mask lanes that way.
        """
        _, vector, descriptor, scalar = instruction.operands
        described, keys = register(descriptor, "s", 4), registers(descriptor)
        generation = self._generation
        vector_offset = vector_reader(vector, "u32") if "offen" in instruction.modifiers else None
        add = scalar_reader(scalar, "u32")

        def locate(waves: Waves, lanes: Lanes) -> Place:
            waves.use(*keys)
            words = waves.scalars[described : described + 4].astype(np.uint64)
            base = words[0] | (words[1] & np.uint64(0xFFFF)) << np.uint64(32)
            scalar_offset = np.broadcast_to(add(waves), waves.scc.shape)[lanes.index].astype(np.int64)
            offset = np.full(len(lanes.index), constant, np.int64)
            if vector_offset is not None:
                offset = offset + np.broadcast_to(vector_offset(waves), waves.active.shape)[lanes.index, lanes.lane]
            if generation < 10 and (offset >= 2**32).any():
                # On CDNA this sum wraps (ROCm/rocm-systems, pull request 10928), on RDNA it does not.
                raise MemoryFault("out of bounds: the offset into a buffer is beyond 32 bits")
            if (base == SCRATCH).all():
                return Place(self._scratch.store, self._in_scratch(waves, lanes, offset + scalar_offset, size))
            if ((words[1] >> np.uint64(16)) & np.uint64(0x3FFF)).any():
                raise UnknownInstruction("a buffer with a stride")
            # RDNA3 ISA, 9.4.1 (table 46): the size is reduced by the offset from the scalar register. So it is on
            # gfx10, says AMD in ROCm/rocMLIR, pull request 678.
            end = words[2][lanes.index].astype(np.int64) - scalar_offset
            inside = offset + size <= end
            if (~inside & (offset < end)).any():
                raise MemoryFault("out of bounds: an access across the end of a buffer's descriptor")
            if generation >= 10:
                inside = inside & _checked_as_raw(words[3])[lanes.index]
            elif (~inside & (offset + size <= end + scalar_offset)).any():
                # CDNA3 ISA, 9.1.5.1, leaves that offset out of the check; AMD's own simulator counts it, and says that
                # gfx950 does (ROCm/rocm-systems, pull request 10928). No kernel may depend on which.
                raise MemoryFault("out of bounds: a scalar offset takes an access beyond the buffer's size")
            address = base[lanes.index] + (offset + scalar_offset).astype(np.uint64)
            return Place(self._memory.store, self._memory.offset(address), inside)

        return locate

    def _scalar_load(self, instruction: Instruction) -> Step:
        no_modifiers(instruction.modifiers, "offset", *_POLICIES)
        target, base, *rest = instruction.operands
        what = instruction.name.removeprefix("s_load_")
        if what not in _SCALAR_WORDS:
            raise UnknownInstruction(f"unknown instruction {instruction.name}")
        count = _SCALAR_WORDS[what]
        first = register(target, "s", count)
        keys = registers(target)
        read = scalar_reader(base, "u64")
        # A constant has a sign, a register has none.
        added = [scalar_reader(text, "u32" if place(text) else "i32") for text in rest if text != "null"]
        constant = whole(instruction.modifiers.get("offset"))
        counters, memory = self._counters, self._memory

        def step(waves: Waves) -> None:
            address = np.broadcast_to(read(waves), waves.scc.shape) + np.uint64(constant & ((1 << 64) - 1))
            for each in added:
                address = address + each(waves).astype(np.int64).view(np.uint64)
            offset = memory.offset(address)
            check_alignment(offset, 4, memory.store.name)
            counters.may_load_into(waves, SCALAR, keys)
            words = memory.store.read(offset, 4 * count, Lanes.scalar(waves)).view("<u4").T
            write_scalars(waves, first, words)
            counters.issue(waves, SCALAR, keys)

        return step
