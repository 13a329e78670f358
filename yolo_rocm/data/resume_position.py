"""Where an endless loader is between two epochs, as plain data, so that another process can go on from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from .seeding import mix


@dataclass(frozen=True)
class Position:
    """Where a loader is between two epochs.

    Attributes:
        seed: Of its workers, and of its batches where those have seeds of their own.
        given: Batches that it has given since its workers started.
        start: State of its generator before the epoch that it has just given.
        memory: What the data set has kept of earlier samples; None where workers hold it.
        closed: Its workers have ended, or are about to: the next epoch starts others, with a seed of their own.
    """

    seed: int
    given: int
    start: torch.Tensor
    memory: Any
    closed: bool


class Passes:
    """Batches of indices, pass after pass without end; it knows the generator's state at the beginning of each pass.

    Samplers draw their order when a pass begins and again when it ends, and workers are asked for batches of the next
    pass while the last one is still trained. So a pass cannot be entered at its end; it is begun again, and skipped.

    Args:
        sampler: Gives the batches of one pass.
        generator: What it draws from.
        length: Batches of a pass.
    """

    def __init__(self, sampler: Iterable[Any], generator: torch.Generator, length: int) -> None:
        self._sampler, self._generator, self._length = sampler, generator, max(1, length)
        self._starts: dict[int, torch.Tensor] = {}
        self._given = 0

    def batches(self, position: Position | None = None) -> Iterator[Any]:
        """Return the batches of indices, from the beginning or from a position on."""
        if position is None:
            return self._from(0)
        self._generator.set_state(position.start)
        self._given = position.given
        return islice(self._from(position.given // self._length - 1), self._length, None)

    def _from(self, number: int) -> Iterator[Any]:
        while True:
            self._starts[number] = self._generator.get_state()
            yield from self._sampler
            number += 1

    def count(self) -> None:
        """Note that one more batch has been given."""
        self._given += 1
        self._starts.pop((self._given - 1) // self._length - 1, None)

    def position(self, seed: int, memory: Any, *, closed: bool) -> Position | None:
        """Describe where the loader is; None within an epoch."""
        if not self._given or self._given % self._length:
            return None
        return Position(seed, self._given, self._starts[self._given // self._length - 1], memory, closed)

    def forget_ahead(self) -> None:
        """Set the generator to where it would be with nothing drawn ahead: how much that is depends on workers."""
        position = self.position(0, None, closed=True)
        if position is not None:
            self.skip(position)

    def skip(self, position: Position) -> None:
        """Set the generator to where it was when the last batch before a position had been drawn."""
        self._generator.set_state(position.start)
        deque(islice(self._sampler, self._length), maxlen=0)


def next_seed(position: Position, *, own_seeds: bool, workers: int) -> int:
    """Return the seed for going on: another one where workers would else draw again what they drew at first."""
    if own_seeds or workers == 0:
        return position.seed
    return mix(position.seed, position.given) >> 2
