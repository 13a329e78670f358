"""Endless loaders that go on where another one stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from yolo_rocm.data.loader import PolicyLoaderMixin, close_following
from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.data.reader import PlainAdapter
from yolo_rocm.data.verify import fingerprint

from .samples import Numbers

QUICK = "spawn" if torch.cuda.is_available() else "fork"


class Repeating:
    """Repeats the batches of one pass for ever, as Ultralytics does."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class Endless(PolicyLoaderMixin, DataLoader):
    """One iterator for all epochs."""

    endless = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))


class Remembering(PlainAdapter):
    """A data set that has a memory, as mosaics do."""

    def __init__(self) -> None:
        self.remembered: list[Any] = []

    def memory(self, dataset: Any) -> Any:
        """Say what there is."""
        return "what was read"

    def remember(self, dataset: Any, memory: Any) -> None:
        """Note it."""
        self.remembered.append(memory)


def make(workers: int, seed: int, reproducible: str = "strict") -> Endless:
    policy = LoaderPolicy(
        context=QUICK, workers=workers, insist=True, reproducible=reproducible, adapter=Remembering(), timeout=60
    )
    generator = torch.Generator().manual_seed(seed)
    return Endless(Numbers(22), policy=policy, batch_size=4, shuffle=True, generator=generator, num_workers=workers)


def epoch(loader: Endless) -> list[Any]:
    return [(batch["index"].tolist(), fingerprint(batch)) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("closed", [False, True], ids=["running", "closed"])
def test_another_loader_goes_on_with_the_same_batches(workers, closed):
    first, second = make(workers, 5), make(workers, 99)
    assert first.position() is None
    seen = [epoch(first), epoch(first)]
    assert [sorted(index for batch, _ in one for index in batch) for one in seen] == [list(range(22))] * 2
    assert seen[0] != seen[1]
    if closed:
        first.close()  # as between the epochs with and without mosaics
    position = first.position()
    assert position.given == 12
    assert position.closed is closed
    wanted = [epoch(first), epoch(first)]
    second.go_on_from(position)
    assert [epoch(second), epoch(second)] == wanted
    if not closed:
        assert second.policy.adapter.remembered == (["what was read"] if workers == 0 else [])
    first.close()
    second.close()


def test_workers_that_go_on_do_not_draw_again_what_they_drew_at_first():
    first, second = make(2, 5, "worker"), make(2, 99, "worker")
    seen = [epoch(first)]
    second.go_on_from(first.position())
    wanted, got = epoch(first), epoch(second)
    assert [batch for batch, _ in got] == [batch for batch, _ in wanted]
    assert not {drawn for _, drawn in got} & {drawn for _, drawn in seen[0]}
    first.close()
    second.close()


def test_a_position_within_an_epoch_and_a_reset():
    first, second = make(0, 5), make(0, 99)
    batches = iter(first)
    given = [next(batches)["index"].tolist() for _ in range(2)]
    second.go_on_from(first.position())
    rest = [batch["index"].tolist() for batch in batches]
    batches = iter(second)
    assert [next(batches)["index"].tolist() for _ in range(4)] == rest
    assert len(given + rest) == 6
    first.reset()
    assert first.iterator is None


def test_what_workers_drew_ahead_does_not_count_where_batches_are_strict():
    loaders = [make(workers, 5) for workers in (0, 2)]
    seen = []
    for loader in loaders:
        epoch(loader)
        loader.reset()
        seen.append([epoch(loader), epoch(loader)])
        loader.close()
    assert seen[0] == seen[1]


def test_loaders_of_one_policy_are_closed_together_and_others_go_on():
    first, second = make(1, 1), make(1, 2)
    epoch(first), epoch(second)
    close_following(first.policy)
    assert first.iterator is None
    assert second.iterator is not None
    second.close()
