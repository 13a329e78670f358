"""Batches as an iterator: through the thread that pins them, across epochs, and at the end."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest
import torch
from torch.utils.data import default_collate

from yolo_rocm.data import pinning as pinned_memory
from yolo_rocm.data.batches import Batches
from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.data.reader import BatchReader, PlainAdapter

from .samples import Busy, Numbers, Waiting

QUICK = "spawn" if torch.cuda.is_available() else "fork"


@dataclass
class Pinned:
    """What the stand-in for pinning makes of a batch."""

    batch: dict
    thread: str


@pytest.fixture
def pinning(monkeypatch):
    """A device, and memory that can be pinned, where there is neither. Returns the devices chosen by threads."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(pinned_memory, "pin", lambda batch: Pinned(batch, threading.current_thread().name))
    threads = torch.get_num_threads()
    yield chosen
    torch.set_num_threads(threads)


def make(dataset, workers: int, observed: list | None = None, **settings) -> Batches:
    observe = None if observed is None else lambda kind, trace, asked, got: observed.append(trace.number)
    reader = BatchReader(dataset, default_collate, PlainAdapter(), skip_broken=False)
    policy = LoaderPolicy(context=QUICK, timeout=0, observe=observe)
    return Batches(reader, policy, workers=workers, prefetch=2, base_seed=0, init=None, **{"pinned": True, **settings})


def indices(count: int, first: int = 0):
    return iter([list(range(4 * i, 4 * i + 4)) for i in range(first, first + count)])


def pinners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loader-pin"]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_by_a_thread_in_their_order_and_observed(pinning, workers):
    observed: list[int] = []
    made = make(Numbers(), workers, observed)
    for _ in range(2):
        made.begin(indices(6))
        got = list(made)
        assert [pinned.batch["index"].tolist() for pinned in got] == [list(range(4 * i, 4 * i + 4)) for i in range(6)]
        assert {pinned.thread for pinned in got} == {"loader-pin"}
        assert list(made) == []  # it has ended for good
    assert observed == list(range(12))
    assert pinning == [3, 3]
    made.close()
    assert pinners() == []


def test_an_epoch_begins_anew_while_the_thread_waits_for_a_slow_batch(pinning, tmp_path):
    """Two threads that read from one worker would tear its messages apart."""
    file = tmp_path / "go"
    made = make(Waiting(file), 1)
    made.begin(indices(3))
    assert [next(made).batch["index"][0].item() for _ in range(2)] == [0, 4]
    before = pinners()
    made.begin(indices(2))
    assert not before[0].is_alive()
    assert len(pinners()) == 1
    file.touch()
    assert [pinned.batch["index"].tolist() for pinned in made] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    made.close()


def test_closing_does_not_wait_for_a_batch_that_never_comes(pinning):
    made = make(Busy(), 2)
    made.begin(indices(6))
    next(made), next(made)
    processes = made._workers
    began = time.monotonic()
    made.close()
    assert time.monotonic() - began < 30  # it would wait for ever
    assert made._workers == []
    assert len(processes) == 2
    assert pinners() == []
    made.close()


def test_the_thread_reads_two_batches_ahead_and_no_more(pinning):
    read: list[int] = []

    class Counted(Numbers):
        def __getitem__(self, index: int) -> dict:
            read.append(index)
            return super().__getitem__(index)

    made = make(Counted(), 0)
    made.begin(indices(9))
    next(made)
    limit = time.monotonic() + 20
    while len(read) < 16 and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(read) == 16  # one handed out, two that wait, and one in the thread's hands
    made.close()
