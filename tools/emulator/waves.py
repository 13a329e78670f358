"""The state of waves: registers, the mask of active lanes, and what is still under way into which register.

Waves that stand at the same instruction are one `Waves` and run in step: every register is an array over waves and
lanes, so that an instruction costs one numpy operation however many waves there are. Where a branch sends them apart
they are split, where they meet again they are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import NotWaitedFor

Array = npt.NDArray[Any]

# Places in the scalar register file, after s0 to s105.
VCC: Final = 106
TTMP: Final = 108
M0: Final = 124
EXEC: Final = 126
FLAT_SCRATCH: Final = 128
XNACK: Final = 130
SCALARS: Final = 132
# Places in the vector register file: accumulation registers (CDNA) follow the 256 others.
ACCUMULATORS: Final = 256
VECTORS: Final = 512
# What nobody has written is a number that shows: a NaN, and an address that is nowhere.
UNWRITTEN: Final = np.uint32(0x7FA5A5A5)

# A register as the record of what is under way knows it: vector or scalar, and its place.
Register = tuple[str, int]


class Waves:
    """Waves at the same instruction.

    Attributes:
        pc: Index of the next instruction.
        wave: Number of each wave in the launch.
        group: Number of each wave's workgroup.
        epoch: Barriers that each wave has passed.
        scalars: Registers x waves.
        vectors: Registers x waves x lanes.
        scc: The scalar condition code of each wave.
        active: Waves x lanes, as `exec` says.
        every_lane: Whether all of them are active.
        issued: Counters x waves: memory instructions issued so far.
        finished: Counters x waves: those known to be finished.
        pending: Register -> counter -> number of the instruction to be waited for, per wave.
        stored: Number of the latest access to LDS memory of each wave, in its counter.
        saved: Number of the latest store of each wave to other memory, in its counter.
        unordered: Number of the latest scalar load of each wave: they finish in any order.
        signalled: Whether each wave has signalled the barrier that it has not waited for yet.
    """

    def __init__(self, wave: Array, group: Array, lanes: int, counters: int, vectors: int = VECTORS) -> None:
        count = len(wave)
        self.pc = 0
        self.wave, self.group = wave, group
        self.epoch = np.zeros(count, np.int64)
        self.scalars = np.full((SCALARS, count), UNWRITTEN, np.uint32)
        self.vectors = np.full((vectors, count, lanes), UNWRITTEN, np.uint32)
        self.scc = np.zeros(count, bool)
        self.issued = np.zeros((counters, count), np.int64)
        self.finished = np.zeros((counters, count), np.int64)
        self.pending: dict[Register, dict[int, Array]] = {}
        self.stored = np.zeros(count, np.int64)
        self.saved = np.zeros(count, np.int64)
        self.unordered = np.zeros(count, np.int64)
        self.signalled = np.zeros(count, bool)
        self.set_exec(np.ones((count, lanes), bool))

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.wave)

    @property
    def lanes(self) -> int:
        """Lanes of each."""
        return int(self.vectors.shape[2])

    def set_exec(self, active: Array) -> None:
        """Set the mask of active lanes, and the registers that show it."""
        self.active = active
        self.every_lane = bool(active.all())
        self.scalars[EXEC : EXEC + 2] = to_words(active)

    def exec_written(self) -> None:
        """Take the mask from its registers after an instruction wrote them."""
        self.active = to_lanes(self.scalars[EXEC : EXEC + 2], self.lanes)
        self.every_lane = bool(self.active.all())

    def use(self, *registers: Register) -> None:
        """Check that nothing is under way into registers that an instruction reads or writes.

        Raises:
            NotWaitedFor: A load into one has not been waited for.
        """
        for register in registers if self.pending else ():
            for counter, number in self.pending.pop(register, {}).items():
                if (number > self.finished[counter]).any():
                    kind, place = register
                    raise NotWaitedFor(f"{kind}{place} is used before the load into it was waited for")

    def parts(self, choose: Array) -> tuple[Waves, Waves]:
        """Split into those that are chosen and the others."""
        return self._take(np.flatnonzero(choose)), self._take(np.flatnonzero(~choose))

    def _take(self, which: Array) -> Waves:
        taken = object.__new__(Waves)
        taken.pc = self.pc
        for name in ("wave", "group", "epoch", "scc", "stored", "saved", "unordered", "signalled"):
            setattr(taken, name, getattr(self, name)[which])
        for name in ("scalars", "vectors", "issued", "finished"):
            setattr(taken, name, getattr(self, name)[:, which])
        taken.active = self.active[which]
        taken.every_lane = bool(taken.active.all())
        taken.pending = {
            key: {counter: number[which] for counter, number in numbers.items()}
            for key, numbers in self.pending.items()
        }
        return taken


def merged(parts: Sequence[Waves]) -> Waves:
    """Return waves that stand at the same instruction as one."""
    if len(parts) == 1:
        return parts[0]
    whole = object.__new__(Waves)
    whole.pc = parts[0].pc
    for name in ("wave", "group", "epoch", "scc", "stored", "saved", "unordered", "signalled", "active"):
        setattr(whole, name, np.concatenate([getattr(part, name) for part in parts]))
    for name in ("scalars", "vectors", "issued", "finished"):
        setattr(whole, name, np.concatenate([getattr(part, name) for part in parts], axis=1))
    whole.every_lane = bool(whole.active.all())
    nothing: dict[int, Array] = {}
    whole.pending = {}
    for key in {key for part in parts for key in part.pending}:
        numbers = [part.pending.get(key, nothing) for part in parts]
        whole.pending[key] = {
            counter: np.concatenate(
                [own.get(counter, np.zeros(part.count, np.int64)) for part, own in zip(parts, numbers, strict=True)]
            )
            for counter in {counter for own in numbers for counter in own}
        }
    return whole


def any_lane(waves: Waves, mask: int) -> Array:
    """Return for each wave whether a bit is set in a mask of lanes, given by its place among the scalars."""
    return np.asarray(waves.scalars[mask : mask + waves.lanes // 32].any(axis=0))


def to_lanes(words: Array, lanes: int) -> Array:
    """Return one or two registers of bits, words x waves, as booleans, waves x lanes."""
    wanted = words[: lanes // 32]
    raw = np.ascontiguousarray(wanted.T).view(np.uint8)
    result: Array = np.unpackbits(raw, axis=1, bitorder="little").astype(bool)
    return result


def to_words(lanes: Array) -> Array:
    """Return booleans, waves x lanes, as two registers of bits, words x waves."""
    raw = np.packbits(lanes, axis=1, bitorder="little").view("<u4").T
    result: Array = raw if len(raw) == 2 else np.concatenate([raw, np.zeros_like(raw)])
    return result
