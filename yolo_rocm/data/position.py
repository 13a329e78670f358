"""Where an endless loader stands, as plain data, so that another process can go on from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from .seeding import mix


@dataclass(frozen=True)
class Position:
    """Where a loader stands between two epochs.

    Attributes:
        seed: Of its workers, and of its batches where those have seeds of their own.
        given: Batches that it has given since its workers started.
        start: State of its generator before the last pass over the data.
        replay: Batches of that pass that have been given.
        generator: State of its generator now; with workers it is ahead of what has been given.
        memory: What the data set has kept of earlier samples; None where it lives in workers.
        workers: How many there are.
    """

    seed: int
    given: int
    start: torch.Tensor
    replay: int
    generator: torch.Tensor
    memory: Any
    workers: int


class Passes:
    """Batches of indices, pass after pass, for ever; it knows the generator's state at the beginning of each pass.

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
        self._offset = 0
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield batches of indices."""
        number = 0
        while True:
            self._starts[number] = self._generator.get_state()
            yield from iter(self._sampler)
            number += 1

    def count(self) -> None:
        """Note that one more batch has been given."""
        self.given += 1
        for number in [number for number in self._starts if number < self._last_pass()]:
            del self._starts[number]

    def _last_pass(self) -> int:
        return (self.given - self._offset - 1) // self._length

    def position(self, seed: int, memory: Any, workers: int) -> Position | None:
        """Describe where the loader stands; None before the first batch."""
        last = self._last_pass()
        if last not in self._starts:
            return None
        replay = self.given - self._offset - last * self._length
        now = self._generator.get_state()
        return Position(seed, self.given, self._starts[last], replay, now, memory, workers)

    def going_on(self, position: Position) -> Iterator[Any]:
        """Yield batches of indices from a position on."""
        self._generator.set_state(position.start)
        self.given, self._offset = position.given, position.given - position.replay
        return islice(iter(self), position.replay, None)


def next_seed(position: Position, *, own_seeds: bool, workers: int) -> int:
    """Return the seed for going on: another one where workers would else draw again what they drew at first."""
    if own_seeds or workers == 0:
        return position.seed
    return mix(position.seed, position.given) >> 2
