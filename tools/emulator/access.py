"""Memory instructions: scalar loads, global, flat, scratch and buffer accesses, LDS.

Addresses and offsets: RDNA3 ISA, chapters 8 (scalar), 9 (buffer), 11 (flat, global, scratch) and 12 (LDS). Loads write
their registers at once and mark them until they are waited for. `Units` says how small the accesses of a program are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from . import lanes as other_lanes
from .errors import MemoryFault, UnknownInstruction
from .memory import Lanes, Memory, Store
from .operands import no_modifiers, place, put, registers, scalar_reader, vector_reader, whole, write_scalars
from .program import Instruction, Program
from .waits import LDS, LOAD, SCALAR, STORE, Counters
from .waves import Array, Register, Waves

Step = Callable[[Waves], None]
# Cache policies change when a value is seen, never which, in memory without caches.
_POLICIES: Final = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "th", "scope")
# Addresses in a buffer descriptor that mean the lane's own scratch.
SCRATCH: Final = 0x5C4A7C000000


class Piece(NamedTuple):
    """What a load or store moves.

    Attributes:
        size: Bytes of memory.
        signed: Whether a small one is extended with its sign.
        half: `None`, or which half of a register alone it is in: 0 or 1.
    """

    size: int
    signed: bool = False
    half: int | None = None


_SIZES: Final = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16,
    "ubyte": 1, "sbyte": 1, "byte": 1, "u8": 1, "i8": 1, "b8": 1,
    "ushort": 2, "sshort": 2, "short": 2, "u16": 2, "i16": 2, "b16": 2,
}  # fmt: skip


def piece(name: str) -> Piece:
    """Return what the last part of a mnemonic says: `dwordx4`, `u16_d16_hi`, `d16_hi_b16`.

    Raises:
        UnknownInstruction: Something else.
    """
    words = name.split("_")
    half = (1 if "hi" in words else 0) if "d16" in words else None
    sizes = [word for word in words if word not in ("d16", "hi")]
    if len(sizes) != 1 or sizes[0] not in _SIZES:
        raise UnknownInstruction(f"no access of kind {name}")
    return Piece(_SIZES[sizes[0]], sizes[0] in ("sbyte", "i8", "sshort", "i16"), half)


def smallest(program: Program, prefixes: tuple[str, ...]) -> int:
    """Return the bytes of the smallest access among a program's instructions of some kinds, at most 4."""
    sizes = [4]
    for instruction in program.instructions:
        if instruction.name.startswith(prefixes):
            if re.search(r"(byte|[ui]8|b8)(_d16(_hi)?)?$", instruction.name):
                sizes.append(1)
            elif re.search(r"(short|[ui]16|b16)(_d16(_hi)?)?$", instruction.name):
                sizes.append(2)
    return min(sizes)


def _result(target: str, size: int) -> tuple[int, list[Register]]:
    found = place(target)
    if found is None or found[0] != "v" or found[2] != max(1, size // 4):
        raise UnknownInstruction(f"{target} is no place for {size} bytes")
    return found[1], registers(target)


def _fill(waves: Waves, first: int, lanes: Lanes, values: Array, what: Piece) -> None:
    """Put bytes that were read into registers of the lanes."""
    if what.size >= 4:
        words = np.ascontiguousarray(values).view("<u4")
        for part in range(what.size // 4):
            waves.vectors[first + part][lanes.index, lanes.lane] = words[:, part]
        return
    raw = np.ascontiguousarray(values).view(f"<{'i' if what.signed else 'u'}{what.size}")[:, 0]
    word = raw.astype(np.int64).astype(np.uint32)
    if what.half is not None:
        old = waves.vectors[first][lanes.index, lanes.lane]
        low = word & np.uint32(0xFFFF)
        word = (old & np.uint32(0xFFFF)) | (low << np.uint32(16)) if what.half else (old & np.uint32(0xFFFF0000)) | low
    waves.vectors[first][lanes.index, lanes.lane] = word


def _take(waves: Waves, first: int, keys: Iterable[Register], lanes: Lanes, what: Piece) -> Array:
    """Return the bytes that the lanes store: lanes x bytes."""
    for key in keys:
        if key in waves.pending:
            waves.use(key)
    count = max(1, what.size // 4)
    words = np.stack([waves.vectors[first + part][lanes.index, lanes.lane] for part in range(count)], axis=1)
    if what.size < 4:
        if what.half:
            words = words >> np.uint32(16)
        return np.ascontiguousarray(words).view(np.uint8)[:, : what.size]
    return np.ascontiguousarray(words).view(np.uint8)


def _aligned(offset: Array, to: int, where: str) -> None:
    if (offset % to).any():
        wrong = int(offset[np.argmax(offset % to != 0)])
        raise MemoryFault(f"unaligned: {where}{wrong:+#x} is not a multiple of {to}")


class Accesses:
    """Memory instructions of one launch."""

    def __init__(self, memory: Memory, lds: Store, lds_size: int, scratch: Store, scratch_size: int, counters: Counters) -> None:
        """Take the memories.

        Args:
            memory: Global memory.
            lds: The LDS of all groups, one after the other.
            lds_size: Bytes between one group's and the next.
            scratch: Scratch of all lanes, one after the other.
            scratch_size: Bytes of each lane.
            counters: What is under way.
        """
        self._memory, self._lds, self._scratch = memory, lds, scratch
        self._lds_size, self._scratch_size, self._counters = lds_size, scratch_size, counters

    def decode(self, instruction: Instruction) -> Step:
        """Return what a memory instruction does."""
        name = instruction.name
        if name.startswith("s_load"):
            return self._scalar_load(instruction)
        if name.startswith("ds_"):
            return self._lds_step(instruction)
        no_modifiers(instruction.modifiers, "offset", "offen", "idxen", *_POLICIES)
        kind, _, rest = name.partition("_")
        if rest.startswith("atomic_"):
            return self._atomic(instruction, kind, rest.removeprefix("atomic_"))
        verb, _, size = rest.partition("_")
        if kind not in ("global", "flat", "scratch", "buffer") or verb not in ("load", "store"):
            raise UnknownInstruction(f"unknown instruction {name}")
        what = piece(size)
        data = instruction.operands[0] if verb == "load" or kind == "buffer" else instruction.operands[1]
        first, keys = _result(data, what.size)
        locate = self._location(instruction, kind, verb == "load")
        align = min(what.size, 4)
        counters = self._counters

        def load(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            store, offset, base = locate(waves, lanes)
            counters.may_load_into(waves, LOAD, keys)
            if len(lanes.index):
                _aligned(offset, align, base)
                _fill(waves, first, lanes, store.read(offset, what.size, lanes), what)
            counters.issue(waves, LOAD, keys)

        def save(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            store, offset, base = locate(waves, lanes)
            values = _take(waves, first, keys, lanes, what)
            if len(lanes.index):
                _aligned(offset, align, base)
                store.write(offset, values, lanes)
            counters.issue(waves, STORE)

        return load if verb == "load" else save

    def _location(
        self, instruction: Instruction, kind: str, load: bool
    ) -> Callable[[Waves, Lanes], tuple[Store, Array, str]]:
        """Return where an access goes: a store, and an offset for each lane."""
        constant = whole(instruction.modifiers.get("offset"))
        operands = instruction.operands
        if kind == "buffer":
            return self._buffer_location(instruction, constant)
        address, base = (operands[1] if load else operands[0]), (operands[2] if len(operands) > 2 else "off")
        if kind == "scratch":
            return self._scratch_location(address, base, constant)
        if base in ("off", "null"):
            read = vector_reader(address, "u64")
            add = None
        else:
            # The offset in the vector register is unsigned, 32 bits.
            read, add = vector_reader(address, "u32"), scalar_reader(base, "u64")

        def locate(waves: Waves, lanes: Lanes) -> tuple[Store, Array, str]:
            addresses = np.broadcast_to(read(waves), waves.active.shape)[lanes.index, lanes.lane].astype(np.uint64)
            if add is not None:
                addresses = addresses + add(waves)[lanes.index]
            addresses = addresses + np.uint64(constant & ((1 << 64) - 1))
            return self._memory.store, self._memory.offset(addresses), self._memory.store.name

        return locate

    def _scratch_location(self, address: str, base: str, constant: int) -> Callable[[Waves, Lanes], tuple[Store, Array, str]]:
        read = None if address == "off" else vector_reader(address, "u32")
        add = None if base == "off" else scalar_reader(base, "u32")

        def locate(waves: Waves, lanes: Lanes) -> tuple[Store, Array, str]:
            offset = np.full(len(lanes.index), constant, np.int64)
            if read is not None:
                offset = offset + np.broadcast_to(read(waves), waves.active.shape)[lanes.index, lanes.lane].view(np.int32)
            if add is not None:
                offset = offset + add(waves)[lanes.index].view(np.int32)
            return self._scratch, self._in_scratch(offset, lanes, waves.lanes), self._scratch.name

        return locate

    def _in_scratch(self, offset: Array, lanes: Lanes, width: int) -> Array:
        if ((offset < 0) | (offset >= self._scratch_size)).any():
            raise MemoryFault(f"out of bounds: scratch{int(offset[0]):+#x} of {self._scratch_size} bytes")
        return (lanes.wave.astype(np.int64) * width + lanes.lane) * self._scratch_size + offset

    def _buffer_location(self, instruction: Instruction, constant: int) -> Callable[[Waves, Lanes], tuple[Store, Array, str]]:
        """A raw buffer (no stride): base and size in a descriptor of four registers; what is outside must not happen."""
        if "idxen" in instruction.modifiers:
            raise UnknownInstruction("idxen")
        _, vector, descriptor, scalar = instruction.operands
        found = place(descriptor)
        if found is None or found[2] != 4:
            raise UnknownInstruction(f"{descriptor} is no descriptor of a buffer")
        keys = registers(descriptor)
        offset_reader = vector_reader(vector, "u32") if "offen" in instruction.modifiers else None
        add = scalar_reader(scalar, "u32")

        def locate(waves: Waves, lanes: Lanes) -> tuple[Store, Array, str]:
            for key in keys:
                if key in waves.pending:
                    waves.use(key)
            words = waves.scalars[found[1] : found[1] + 4].astype(np.uint64)
            base = words[0] | (words[1] & np.uint64(0xFFFF)) << np.uint64(32)
            offset = np.full(len(lanes.index), constant, np.int64) + np.broadcast_to(add(waves), waves.scc.shape)[lanes.index]
            if offset_reader is not None:
                offset = offset + np.broadcast_to(offset_reader(waves), waves.active.shape)[lanes.index, lanes.lane]
            if (base == SCRATCH).all():
                return self._scratch, self._in_scratch(offset, lanes, waves.lanes), self._scratch.name
            if ((words[1] >> np.uint64(16)) & np.uint64(0x3FFF)).any():
                raise UnknownInstruction("a buffer with a stride")
            if (offset >= words[2][lanes.index].astype(np.int64)).any():
                raise MemoryFault("out of bounds: behind the end of a buffer's descriptor")
            address = base[lanes.index] + offset.astype(np.uint64)
            return self._memory.store, self._memory.offset(address), self._memory.store.name

        return locate

    def _scalar_load(self, instruction: Instruction) -> Step:
        no_modifiers(instruction.modifiers, "offset", *_POLICIES)
        target, base, *rest = instruction.operands
        found = place(target)
        if found is None or found[0] != "s":
            raise UnknownInstruction(f"{target} is no scalar register")
        first, count = found[1], found[2]
        keys = registers(target)
        read = scalar_reader(base, "u64")
        added = [scalar_reader(text, "u32") for text in rest if text != "null"]
        constant = whole(instruction.modifiers.get("offset"))
        counters, memory = self._counters, self._memory

        def step(waves: Waves) -> None:
            address = np.broadcast_to(read(waves), waves.scc.shape) + np.uint64(constant & ((1 << 64) - 1))
            for each in added:
                address = address + each(waves).view(np.int32).astype(np.int64).view(np.uint64)
            offset = memory.offset(address)
            _aligned(offset, 4, memory.store.name)
            counters.may_load_into(waves, SCALAR, keys)
            words = memory.store.read(offset, 4 * count, Lanes.scalar(waves)).view("<u4").T
            write_scalars(waves, first, words)
            counters.issue(waves, SCALAR, keys)

        return step

    def _lds_step(self, instruction: Instruction) -> Step:
        name = instruction.name
        if name == "ds_swizzle_b32":
            return self._swizzle(instruction)
        if name in ("ds_bpermute_b32", "ds_permute_b32"):
            return self._permute(instruction)
        no_modifiers(instruction.modifiers, "offset", "offset0", "offset1")
        match = re.fullmatch(r"ds_(read|load|write|store)(2addr_stride64|_2addr_stride64|_2addr|2st64|2)?_(\w+)", name)
        if match is None:
            return self._lds_atomic(instruction)
        load, two, what = match[1] in ("read", "load"), match[2], piece(match[3])
        step_size = what.size * (64 if two and "64" in two else 1)
        offsets = [whole(instruction.modifiers.get("offset"))]
        if two:
            offsets = [step_size * whole(instruction.modifiers.get(key)) for key in ("offset0", "offset1")]
        address = vector_reader(instruction.operands[1 if load else 0], "u32")
        if load:
            first, keys = _result(instruction.operands[0], what.size * len(offsets))
            return self._lds_load(address, offsets, what, first, keys)
        data = [_result(text, what.size) for text in instruction.operands[1:]]
        return self._lds_store(address, offsets, what, data)

    def _lds_offset(self, waves: Waves, lanes: Lanes, address: Callable[[Waves], Array], constant: int, what: Piece) -> Array:
        local = np.broadcast_to(address(waves), waves.active.shape)[lanes.index, lanes.lane].astype(np.int64) + constant
        # In the mode that amdhsa runs in, accesses of 8 bytes and more need four.
        _aligned(local, min(what.size, 4), "LDS")
        outside = (local < 0) | (local + what.size > self._lds_size)
        if outside.any():
            wrong = int(local[np.argmax(outside)])
            raise MemoryFault(f"out of bounds: {what.size} bytes at LDS{wrong:+#x} of {self._lds_size} bytes")
        return lanes.group * self._lds_size + local

    def _lds_load(self, address: Callable[[Waves], Array], offsets: list[int], what: Piece, first: int, keys: list[Register]) -> Step:
        counters = self._counters

        def load(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            if len(lanes.index):
                places = [self._lds_offset(waves, lanes, address, constant, what) for constant in offsets]
                counters.may_load_into(waves, LDS, keys)
                for part, offset in enumerate(places):
                    _fill(waves, first + part * what.size // 4, lanes, self._lds.read(offset, what.size, lanes), what)
            counters.issue(waves, LDS, keys)

        return load

    def _lds_store(
        self, address: Callable[[Waves], Array], offsets: list[int], what: Piece, data: list[tuple[int, list[Register]]]
    ) -> Step:
        counters = self._counters

        def save(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            for constant, (first, keys) in zip(offsets, data, strict=True):
                values = _take(waves, first, keys, lanes, what)
                if len(lanes.index):
                    self._lds.write(self._lds_offset(waves, lanes, address, constant, what), values, lanes)
            counters.issue(waves, LDS)

        return save

    def _swizzle(self, instruction: Instruction) -> Step:
        first, keys = _result(instruction.operands[0], 4)
        read = vector_reader(instruction.operands[1], "u32")
        offset = instruction.modifiers.get("offset", "0")

        def step(waves: Waves) -> None:
            source = other_lanes.swizzled(offset, waves.lanes)
            value = np.broadcast_to(read(waves), waves.active.shape)[:, source]
            self._counters.may_load_into(waves, LDS, keys)
            put(waves, first, np.where(waves.active[:, source], value, np.uint32(0)), 32)
            self._counters.issue(waves, LDS, keys)

        return step

    def _permute(self, instruction: Instruction) -> Step:
        no_modifiers(instruction.modifiers, "offset")
        first, keys = _result(instruction.operands[0], 4)
        address, read = (vector_reader(text, "u32") for text in instruction.operands[1:3])
        constant = np.uint32(whole(instruction.modifiers.get("offset")))
        backwards = instruction.name == "ds_bpermute_b32"

        def step(waves: Waves) -> None:
            other = ((np.broadcast_to(address(waves), waves.active.shape) + constant) >> np.uint32(2)) % waves.lanes
            value = np.where(waves.active, np.broadcast_to(read(waves), waves.active.shape), np.uint32(0))
            self._counters.may_load_into(waves, LDS, keys)
            if backwards:
                result = np.take_along_axis(value, other.astype(np.int64), axis=1)
            else:
                result = np.zeros_like(value)
                index, lane = np.nonzero(waves.active)
                result[index, other[index, lane]] = value[index, lane]
            put(waves, first, result, 32)
            self._counters.issue(waves, LDS, keys)

        return step

    def _atomic(self, instruction: Instruction, kind: str, what: str) -> Step:
        operate, size, floating = _atomic_operation(what)
        returns = instruction.modifiers.get("th") == "TH_ATOMIC_RETURN" or "glc" in instruction.modifiers or (
            "sc0" in instruction.modifiers
        )
        operands = list(instruction.operands)
        target = operands.pop(0) if returns else None
        locate = self._location(
            Instruction(instruction.name, "", (operands[0], *operands[1:]), instruction.modifiers, 0, ""), kind, False
        )
        compare = operate is None
        first, keys = _result(operands[1], 2 * size if compare else size)
        results = _result(target, size) if target else None

        def step(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            store, offset, base = locate(waves, lanes)
            values = _take(waves, first, keys, lanes, Piece(2 * size if compare else size))
            if len(lanes.index):
                _aligned(offset, size, base)
                before = _change(store, offset, values, operate, size, floating, lanes)
                if results is not None:
                    _fill(waves, results[0], lanes, before, Piece(size))
            self._counters.issue(waves, LOAD if results else STORE, results[1] if results else ())

        return step

    def _lds_atomic(self, instruction: Instruction) -> Step:
        match = re.fullmatch(r"ds_(\w+?)(_rtn)?_([uif](?:32|64)|b32|b64)", instruction.name)
        if match is None:
            raise UnknownInstruction(f"unknown instruction {instruction.name}")
        operate, size, floating = _atomic_operation(f"{match[1]}_{match[3]}")
        operands = list(instruction.operands)
        results = _result(operands.pop(0), size) if match[2] else None
        address = vector_reader(operands[0], "u32")
        first, keys = _result(operands[1], size)
        constant = whole(instruction.modifiers.get("offset"))
        if operate is None:
            raise UnknownInstruction(f"unknown instruction {instruction.name}")

        def step(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            values = _take(waves, first, keys, lanes, Piece(size))
            if len(lanes.index):
                offset = self._lds_offset(waves, lanes, address, constant, Piece(size))
                before = _change(self._lds, offset, values, operate, size, floating, lanes)
                if results is not None:
                    _fill(waves, results[0], lanes, before, Piece(size))
            self._counters.issue(waves, LDS, results[1] if results else ())

        return step


_ATOMIC: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda old, new: old + new, "sub": lambda old, new: old - new, "or": lambda old, new: old | new,
    "and": lambda old, new: old & new, "xor": lambda old, new: old ^ new, "swap": lambda old, new: new,
    "umax": max, "umin": min, "max": max, "min": min, "wrxchg": lambda old, new: new, "storexchg": lambda old, new: new,
}  # fmt: skip


def _atomic_operation(name: str) -> tuple[Callable[[int, int], int] | None, int, bool]:
    """Return what an atomic does (None: compare and swap), how many bytes it changes, whether they are floating point."""
    match = re.fullmatch(r"(\w+?)(?:_(x2|[uifb](?:32|64)))?", name)
    size = 8 if match and match[2] and (match[2] == "x2" or match[2].endswith("64")) else 4
    word = match[1] if match else ""
    if word == "cmpswap":
        return None, size, False
    signed = bool(match and match[2] and match[2][0] == "i") or word in ("smax", "smin")
    if word not in _ATOMIC or signed or (word in ("max", "min") and (match is None or match[2] not in ("u32", "u64"))):
        raise UnknownInstruction(f"unknown atomic {name}")
    return _ATOMIC[word], size, bool(match and match[2] and match[2][0] == "f")


def _change(
    store: Store, offset: Array, values: Array, operate: Callable[[int, int], int] | None, size: int, floating: bool, lanes: Lanes
) -> Array:
    """Change memory lane by lane, and return what was there before: lanes x bytes."""
    store.add(offset, size, lanes)
    before = np.empty((len(offset), size), np.uint8)
    dtype = np.dtype(f"<f{size}" if floating else f"<u{size}")
    given = np.ascontiguousarray(values).view(dtype)
    for row, place_ in enumerate(offset):
        old = store.data[place_ : place_ + size].view(dtype)
        before[row] = store.data[place_ : place_ + size]
        if operate is None:
            new, expected = given[row]
            if old[0] == expected:
                old[0] = new
        elif floating:
            old[0] = operate(old[0], given[row, 0])
        else:
            old[0] = operate(int(old[0]), int(given[row, 0])) & ((1 << (8 * size)) - 1)
    return before
