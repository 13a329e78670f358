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
        generator: State of its generator when the last batch had been drawn, and nothing ahead of it.
        memory: What the data set has kept of earlier samples; None where it lives in workers.
        anew: Its workers have ended, or are about to: it begins anew from `generator`.
    """

    seed: int
    given: int
    start: torch.Tensor
    replay: int
    generator: torch.Tensor
    memory: Any
    anew: bool


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
        self._ends: dict[int, torch.Tensor] = {}
        self._offset = 0
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield batches of indices."""
        number = 0
        while True:
            self._starts[number] = self._generator.get_state()
            for place, batch in enumerate(self._sampler, start=1):
                if place == self._length:
                    self._ends[number] = self._generator.get_state()
                yield batch
            number += 1

    def count(self) -> None:
        """Note that one more batch has been given."""
        self.given += 1
        last = self._last_pass()
        for states in (self._starts, self._ends):
            for number in [number for number in states if number < last]:
                del states[number]

    def _last_pass(self) -> int:
        return (self.given - self._offset - 1) // self._length

    def position(self, seed: int, memory: Any, *, anew: bool) -> Position | None:
        """Describe where the loader stands; None before the first batch."""
        last = self._last_pass()
        if last not in self._starts:
            return None
        replay = self.given - self._offset - last * self._length
        return Position(seed, self.given, self._starts[last], replay, self._state_without_ahead(), memory, anew)

    def _state_without_ahead(self) -> torch.Tensor:
        last = self._last_pass()
        between = (last + 1) * self._length == self.given - self._offset
        return self._ends[last] if between and last in self._ends else self._generator.get_state()

    def forget_ahead(self) -> None:
        """Set the generator to where it were if nothing had been drawn ahead: how much that is depends on workers."""
        self._generator.set_state(self._state_without_ahead())

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
