"""LDS instructions: loads and stores, one or two at once, permutations of lanes, atomics (RDNA3 ISA, chapter 12)."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .atomics import atomic, change
from .errors import UnknownInstruction
from .lanes import swizzled
from .memory import Parts
from .operands import no_modifiers, put, vector_reader, whole
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
        if name in ("ds_bpermute_b32", "ds_permute_b32"):
            return self._permute(instruction)
        no_modifiers(instruction.modifiers, "offset", "offset0", "offset1")
        match = re.fullmatch(r"ds_(read|load|write|store)(2addr_stride64|_2addr_stride64|_2addr|2st64|2)?_(\w+)", name)
        if match is None:
            return self._atomic(instruction)
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
        counters = self._counters

        def load(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            if len(lanes.index):
                places = [self._offset(waves, lanes, address, constant, what) for constant in offsets]
                counters.may_load_into(waves, LDS, keys, half=what.half is not None)
                for part, offset in enumerate(places):
                    fill(
                        waves,
                        first + part * what.size // 4,
                        lanes,
                        self._parts.store.read(offset, what.size, lanes),
                        what,
                    )
            counters.issue(waves, LDS, keys)

        return load

    def _store(
        self, address: Callable[[Waves], Array], offsets: list[int], what: Piece, data: list[tuple[int, list[Register]]]
    ) -> Step:
        counters = self._counters

        def save(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            for constant, (first, keys) in zip(offsets, data, strict=True):
                values = take(waves, first, keys, lanes, what)
                if len(lanes.index):
                    self._parts.store.write(self._offset(waves, lanes, address, constant, what), values, lanes)
            counters.issue(waves, LDS)

        return save

    def _swizzle(self, instruction: Instruction) -> Step:
        first, keys = place_of(instruction.operands[0], 4)
        read = vector_reader(instruction.operands[1], "u32")
        offset = instruction.modifiers.get("offset", "0")

        def step(waves: Waves) -> None:
            source = swizzled(offset, waves.lanes)
            value = np.broadcast_to(read(waves), waves.active.shape)[:, source]
            self._counters.may_load_into(waves, LDS, keys)
            put(waves, first, np.where(waves.active[:, source], value, np.uint32(0)), 32)
            self._counters.issue(waves, LDS, keys, memory=False)

        return step

    def _permute(self, instruction: Instruction) -> Step:
        no_modifiers(instruction.modifiers, "offset")
        first, keys = place_of(instruction.operands[0], 4)
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
            self._counters.issue(waves, LDS, keys, memory=False)

        return step

    def _atomic(self, instruction: Instruction) -> Step:
        match = re.fullmatch(r"ds_(\w+?)(_rtn)?_([uif](?:32|64)|b32|b64)", instruction.name)
        if match is None:
            raise UnknownInstruction(f"unknown instruction {instruction.name}")
        operate, size, kept = atomic(f"{match[1]}_{match[3]}")
        operands = list(instruction.operands)
        results = place_of(operands.pop(0), size) if match[2] else None
        address = vector_reader(operands[0], "u32")
        first, keys = place_of(operands[1], size)
        constant = whole(instruction.modifiers.get("offset"))
        if operate is None:
            raise UnknownInstruction(f"unknown instruction {instruction.name}")

        def step(waves: Waves) -> None:
            lanes = Lanes.active(waves)
            values = take(waves, first, keys, lanes, Piece(size))
            if len(lanes.index):
                offset = self._offset(waves, lanes, address, constant, Piece(size))
                before = change(self._parts.store, offset, values, operate, size, kept, lanes)
                if results is not None:
                    fill(waves, results[0], lanes, before, Piece(size))
            self._counters.issue(waves, LDS, results[1] if results else ())

        return step
