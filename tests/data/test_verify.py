"""Fingerprints of batches, and the proof that a loader is reproducible."""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from yolo_rocm.data.seeding import seed_everything
from yolo_rocm.data.verify import fingerprint, verify_reproducibility
from yolo_rocm.errors import LoaderError

pytestmark = pytest.mark.usefixtures("generators_as_found")


@dataclass
class Box:
    """An object in a batch."""

    corners: list


PLAIN = [1, 1.0, True, "1", b"1", None, [], (), {}, [1], (1,), {"a": 1}, {"a": 2}, {"b": 1}, ["ab", "c"], ["a", "bc"]]
NESTED = [[[1], 2], [[1, 2]], {1, 2}, Path("a"), Box([1]), Box([2]), np.array(["x", "yz"]), np.float32(1)]
OBJECTS = [np.array([number, "x"], dtype=object) for number in (1, 2)]
DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.complex64)
TENSORS = [torch.zeros(2, 3), torch.zeros(3, 2), *(torch.zeros(2, 3, dtype=dtype) for dtype in DTYPES), torch.tensor(0)]
TENSORS += [torch.tensor(1), torch.zeros(0), torch.zeros(0, 4), torch.eye(3)]
TENSORS += [torch.arange(6).reshape(2, 3).t(), torch.arange(6).reshape(3, 2)]
ARRAYS = [np.zeros((2, 3), np.float32), np.zeros((0, 4), np.float32)]
DIFFERENT = [*PLAIN, *NESTED, *OBJECTS, *TENSORS, *ARRAYS]


def test_fingerprints_tell_batches_apart():
    prints = [fingerprint(value) for value in DIFFERENT]
    assert len(set(prints)) == len(DIFFERENT)
    assert prints == [fingerprint(value) for value in DIFFERENT]


def test_fingerprints_are_the_same_in_every_process():
    # Python orders this set anew in every process. Same value with Python 3.10, 3.11, 3.13 and torch 1.13, 2.10.
    batch = {"n": (1, 2.5), "s": {"c", "b", "a"}, "t": torch.arange(4), "a": np.arange(3, dtype=np.int32)}
    assert fingerprint(batch) == "73bea76c03d4d9b048ddec4f0cdb9c1b"
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(np.arange(9)[::2]) == fingerprint(np.array([0, 2, 4, 6, 8]))


class Random(Dataset):
    """Draws every sample from all generators, as augmentation does."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index):
        return {"img": torch.randn(3, 4), "noise": np.random.rand(2), "pick": random.random(), "index": index}


def seeded_loader(**settings):
    return DataLoader(Random(), batch_size=4, shuffle=True, generator=seed_everything(3), **settings)


def test_a_seeded_loader_is_reproducible_and_generators_are_left_alone():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    found = verify_reproducibility(seeded_loader, batches=3, runs=3)
    assert (found.same, found.runs, found.batches, found.differences) == (True, 3, 3, [])
    assert len(set(found.fingerprints)) == 3
    assert str(found) == "reproducible: 3 runs gave the same 3 batches, byte for byte"
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_a_missing_seed_is_found_and_named():
    def unseeded():
        return DataLoader(Random(), batch_size=4)

    found = verify_reproducibility(unseeded, batches=2, runs=3)
    assert not found.same
    assert {(d.run, d.batch, d.key) for d in found.differences} == {
        (run, batch, key) for run in (2, 3) for batch in (1, 2) for key in ("img", "noise", "pick")
    }
    assert str(found).startswith("not reproducible, 12 differences from run 1: run 2, batch 1, img: other values; ")


def runs_of(*results):
    """Return a function that gives one list of batches after another."""
    remaining = iter(results)
    return lambda: next(remaining)


@pytest.mark.parametrize(
    ("first", "second", "key", "how"),
    [
        ({"a": np.zeros(2)}, {"a": np.zeros(2, int)}, "a", "float64 (2,) and ndarray int64 (2,)"),
        ({"a": torch.zeros(1)}, {"a": -torch.zeros(1)}, "a", "other values"),
        ({"a": 1}, {"a": 1, "b": 2}, "b", "only in this run"),
        ({"a": 1, "b": 2}, {"a": 1}, "b", "only in run 1"),
        ({"a": {"files": ["x", "y"]}}, {"a": {"files": ["x", "z"]}}, "a['files'][1]", "'y' and str 'z'"),
        ({"a": Box([1])}, {"a": Box([2])}, "a[corners][0]", "1 and int 2"),
    ],
)
def test_differences_are_told(first, second, key, how):
    found = verify_reproducibility(runs_of([first], [second]))
    assert not found.same
    (difference,) = [d for d in found.differences if d.key == key]
    assert (difference.run, difference.batch) == (2, 1)
    assert how in difference.how


def test_buffers_that_are_used_again_do_not_hide_a_difference():
    def reuses(values):
        buffer = torch.zeros(1)
        for value in values:
            buffer.fill_(value)
            yield buffer

    found = verify_reproducibility(runs_of(reuses([1, 2]), reuses([3, 2])))
    assert [d.batch for d in found.differences] == [1]


def test_missing_batches_are_differences_and_nothing_to_compare_is_an_error():
    found = verify_reproducibility(runs_of([1, 2, 3], [1, 2]))
    assert [str(d) for d in found.differences] == ["run 2, batch 3, batch: only 2 of 3 batches came"]
    with pytest.raises(LoaderError, match="no batch"):
        verify_reproducibility(list)
    with pytest.raises(LoaderError, match="runs=1"):
        verify_reproducibility(list, runs=1)


def test_without_a_loader_the_packages_own_is_verified_and_its_workers_end():
    found = verify_reproducibility(batches=2)
    assert found.same, str(found)
    assert multiprocessing.active_children() == []
