"""Long lists in memory that all workers share."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

from yolo_rocm.data.shared_lists import Packed, SharedList
from yolo_rocm.data.worker_start import worker_context

from ..tables import each_row


@each_row(
    "items",
    [
        [f"file {i}.jpg" for i in range(100)],
        [Path(f"/data/{i}.npy") for i in range(100)],
        [{"cls": np.full((i % 3, 1), i), "name": f"{i}"} for i in range(100)],
        [],
    ],
    ids=["text", "paths", "labels", "empty"],
)
def test_a_shared_list_reads_like_the_list(items):
    shared = SharedList(items)
    assert len(shared) == len(items)
    for mine, theirs in zip(shared, items, strict=True):
        assert isinstance(mine, type(theirs))
        np.testing.assert_equal(mine, theirs)
        assert not isinstance(mine, dict) or copy.deepcopy(mine) is mine  # it is new: nobody has to copy it again
    if items:
        np.testing.assert_equal(shared[-1], items[-1])
        np.testing.assert_equal(shared[2:5], items[2:5])
        assert shared[0] is not shared[0]  # nobody can change it for others
    with pytest.raises(IndexError):
        shared[len(items)]


class Holder:
    """Refers to the same list twice, as a data set and its transforms do."""

    def __init__(self) -> None:
        self.labels = [{"i": i, "boxes": np.arange(i % 5)} for i in range(500)]
        self.short = [1, 2, 3]
        self.inner = {"labels": self.labels}


def look(connection, packed):
    holder = packed.unpack()
    same = holder.labels is holder.inner["labels"]
    connection.send((type(holder.labels).__name__, same, holder.labels[321]["i"], holder.short))


def test_a_packed_object_arrives_with_its_lists_shared():
    holder = Holder()
    ours, theirs = multiprocessing.Pipe()
    packed = Packed(holder, {"labels": holder.labels, "short": holder.short})
    process = worker_context("spawn").Process(target=look, args=(theirs, packed))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == ("SharedList", True, 321, [1, 2, 3])
    process.join()
    assert isinstance(holder.labels, list)
    assert packed.unpack() is holder


def test_what_travels_does_not_grow_with_the_lists():
    sizes = []
    for count in (1_000, 20_000):
        holder = Holder()
        holder.labels = [{"i": i, "boxes": np.arange(4)} for i in range(count)]
        holder.inner = {"labels": holder.labels}
        sizes.append(len(Packed(holder, {"labels": holder.labels})._dump()))
    assert sizes[0] == sizes[1]
    assert len(pickle.dumps(holder)) > 100 * sizes[1]
