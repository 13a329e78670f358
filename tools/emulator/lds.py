"""LDS instructions: loads and stores, one or two at once, permutations of lanes (RDNA3 ISA, chapter 12)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .errors import UnknownInstruction
from .memory import Parts
from .operands import Reader, no_modifiers, put, vector_reader, whole
from .pieces import Piece, check_alignment, fill, piece, place_of, take
from .program import Instruction
from .store import Lanes
from .waits import LDS, Counters
from .waves import Array, Register, Waves

Step = Callable[[Waves], None]


class LdsAccesses:
    """LDS instructions of one launch."""

    def __init__(self, parts: Parts, counters: Counters, keeps_halves: bool) -> None:
        """Take the LDS of each workgroup, what is under way, and what becomes of the other half of a register."""
        self._parts, self._counters, self._keeps_halves = parts, counters, keeps_halves

    def decode(self, instruction: Instruction) -> Step:
        """Return what an LDS instruction does."""
        name = instruction.name
        if name == "ds_swizzle_b32":
            return self._swizzle(instruction)
        if name == "ds_bpermute_b32":
            return self._permute(instruction)
        no_modifiers(instruction.modifiers, "offset", "offset0", "offset1")
        match = re.fullmatch(r"ds_(read|load|write|store)(2addr_stride64|_2addr_stride64|_2addr|2st64|2)?_(\w+)", name)
        if match is None:
            raise UnknownInstruction(f"unknown instruction {name}")
        load, two, what = match[1] in ("read", "load"), match[2], piece(match[3], self._keeps_halves)
        step_size = what.size * (64 if two and "64" in two else 1)
        offsets = [whole(instruction.modifiers.get("offset"))]
        if two:
            offsets = [step_size * whole(instruction.modifiers.get(key)) for key in ("offset0", "offset1")]
        address = vector_reader(instruction.operands[1 if load else 0], "u32")
        if load:
            first, keys = place_of(instruction.operands[0], what.size * len(offsets))
            return self._load(address, offsets, what, first, keys)
        data = [place_of(text, what.size) for text in instruction.operands[1:]]
        return self._store(address, offsets, what, data)

    def _offset(
        self, waves: Waves, lanes: Lanes, address: Callable[[Waves], Array], constant: int, what: Piece
    ) -> Array:
        lane = np.broadcast_to(address(waves), waves.active.shape)[lanes.index, lanes.lane]
        local = (lane.astype(np.int64) + constant) & 0xFFFFFFFF
        # Stricter than the hardware's mode for unaligned accesses, which no kernel here needs.
        check_alignment(local, min(what.size, 4), self._parts.store.name)
        return self._parts.offset(lanes.group, local, what.size)

    def _load(
        self, address: Callable[[Waves], Array], offsets: list[int], what: Piece, first: int, keys: list[Register]
    ) -> Step:
        def load(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            if len(lanes.index):
                places = [self._offset(waves, lanes, address, constant, what) for constant in offsets]
                self._counters.may_load_into(waves, LDS, keys, half=what.half is not None)
                for part, offset in enumerate(places):
                    values = self._parts.store.read(offset, what.size, lanes)
                    fill(waves, first + part * what.size // 4, lanes, values, what)
            self._counters.issue(waves, LDS, keys)

        return load

    def _store(
        self, address: Callable[[Waves], Array], offsets: list[int], what: Piece, data: list[tuple[int, list[Register]]]
    ) -> Step:
        def save(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            for constant, (first, keys) in zip(offsets, data, strict=True):
                values = take(waves, first, keys, lanes, what)
                if len(lanes.index):
                    self._parts.store.write(self._offset(waves, lanes, address, constant, what), values, lanes)
            self._counters.issue(waves, LDS)

        return save

    def _swizzle(self, instruction: Instruction) -> Step:
        match = re.fullmatch(r"swizzle\(SWAP,\s*(\d+)\)", instruction.modifiers.get("offset", ""))
        if match is None:
            raise UnknownInstruction(f"another pattern: {instruction.text}")
        first, keys = place_of(instruction.operands[0], 4)
        read = vector_reader(instruction.operands[1], "u32")
        return self._exchange(first, keys, read, lambda waves: np.arange(waves.lanes) ^ int(match[1]))

    def _permute(self, instruction: Instruction) -> Step:
        no_modifiers(instruction.modifiers, "offset")
        first, keys = place_of(instruction.operands[0], 4)
        address, read = (vector_reader(text, "u32") for text in instruction.operands[1:3])
        constant = np.uint32(whole(instruction.modifiers.get("offset")))
        return self._exchange(
            first, keys, read, lambda waves: ((address(waves) + constant) >> np.uint32(2)) % waves.lanes
        )

    def _exchange(self, first: int, keys: list[Register], read: Reader, source: Callable[[Waves], Array]) -> Step:
        """Return the step of lanes that read other lanes, by their numbers; inactive ones read as zero."""

        def step(waves: Waves) -> None:
            value = np.where(waves.active, read(waves), np.uint32(0))
            other = np.broadcast_to(source(waves), waves.active.shape).astype(np.int64)
            self._counters.may_load_into(waves, LDS, keys)
            put(waves, first, np.take_along_axis(value, other, axis=1), 32)
            self._counters.issue(waves, LDS, keys, memory=False)

        return step
