"""Loaders for any data set: order, epochs, errors, dead and stuck workers, reproducibility."""

from __future__ import annotations

import functools
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from yolo_rocm import LoaderError, create_dataloader
from yolo_rocm.data.loader import PolicyLoader
from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.data.seeding import seed_everything
from yolo_rocm.data.transport import HAS_MEMFD
from yolo_rocm.data.verify import fingerprint

from .samples import (
    Broken,
    Faulty,
    Informed,
    Mixed,
    Mortal,
    Numbers,
    Stuck,
    Unloadable,
    Widths,
    leave,
    leave_the_second_time,
    refuse,
    shared_memory,
    worker_pids,
)

# The quickest start method there is: a process that has started its GPU cannot be forked.
QUICK = "spawn" if torch.cuda.is_available() else "fork"
METHODS = [QUICK, "forkserver"]
needs_memfd = pytest.mark.skipif(not HAS_MEMFD, reason="batches travel in torch's shared memory here")


def indices(loader) -> list[int]:
    return [int(i) for batch in loader for i in batch["index"]]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("context", METHODS)
def test_every_sample_once_in_order_with_the_same_workers_each_epoch(context):
    loader = create_dataloader(Numbers(), 4, num_workers=2, context=context)
    assert isinstance(loader, DataLoader)
    assert indices(loader) == list(range(40))
    pids = worker_pids(loader)
    assert len(set(pids)) == 2
    assert indices(loader) == list(range(40))
    assert worker_pids(loader) == pids
    loader.close()
    assert alive(pids) == []


def test_an_epoch_left_early_does_not_leak_into_the_next():
    loader = create_dataloader(Numbers(), 4, num_workers=2, context=QUICK)
    for number, _batch in enumerate(loader):
        if number == 2:
            break
    pids = worker_pids(loader)
    assert indices(loader) == list(range(40))
    assert worker_pids(loader) == pids
    loader.close()


def test_workers_end_with_each_epoch_if_asked():
    loader = create_dataloader(Numbers(), 4, num_workers=1, context=QUICK, persistent=False)
    pids = [pid for _ in loader for pid in worker_pids(loader)]
    assert loader.iterator is None
    assert alive(pids) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_torchs_own_loader(workers):
    seed_everything(3)
    stock = DataLoader(Numbers(), 4, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(5))
    wanted = [fingerprint(batch) for batch in stock]
    seed_everything(3)
    generator = torch.Generator().manual_seed(5)
    ours = create_dataloader(Numbers(), 4, shuffle=True, num_workers=workers, context=QUICK, generator=generator)
    assert [fingerprint(batch) for batch in ours] == wanted
    ours.close()


def test_strict_batches_do_not_depend_on_the_number_of_workers():
    seen = []
    for workers in (0, 1, 3):
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        loader = create_dataloader(
            Numbers(), 4, shuffle=True, seed=1, num_workers=workers, context=QUICK, reproducible="strict"
        )
        seen.append([(batch["index"].tolist(), *batch["drawn"].flatten().tolist()) for batch in loader])
        loader.close()
        # Reading in this process leaves its generators alone.
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())
    assert seen[1:] == seen[:1] * 2
    assert len({drawn for _, *numbers in seen[0] for drawn in numbers}) == 40 * 3


def test_broken_samples_are_replaced_where_asked_and_named_once():
    lines: list[str] = []
    loader = create_dataloader(Broken(), 4, num_workers=2, context=QUICK, skip_broken=True, tell=lines.append)
    got = indices(loader)
    assert len(got) == 40
    assert not {3, 17} & set(got)
    assert len(list(loader)) == 10
    loader.close()
    assert [line for line in lines if "another sample" in line] == [
        "sample 3 cannot be read, another sample took its place: FileNotFoundError: no picture 3",
        "sample 17 cannot be read, another sample took its place: FileNotFoundError: no picture 17",
    ]
    with pytest.raises(FileNotFoundError, match="no picture 3"):
        list(create_dataloader(Broken(), 4, num_workers=2, context=QUICK))


def test_an_error_of_the_code_arrives_as_its_own_type_and_ends_the_workers():
    loader = create_dataloader(Faulty(), 4, num_workers=2, context=QUICK, skip_broken=True)
    iterator = iter(loader)
    next(iterator)
    pids = worker_pids(loader)
    with pytest.raises(KeyError, match="colour"):
        list(iterator)
    assert alive(pids) == []


def test_a_killed_worker_is_replaced_and_its_batches_are_the_same(tmp_path):
    lines: list[str] = []
    settings = {"num_workers": 2, "context": QUICK, "reproducible": "strict", "seed": 1, "tell": lines.append}
    undisturbed = [fingerprint(batch) for batch in create_dataloader(Numbers(), 4, **settings)]
    (tmp_path / "1").touch()
    loader = create_dataloader(Mortal(tmp_path), 4, **settings)
    assert [fingerprint(batch) for batch in loader] == undisturbed
    loader.close()
    (line,) = lines
    assert re.search(r"ended by SIGKILL.*1 of 3.*memory", line)


def test_the_fourth_death_ends_the_loader_with_the_remedy(tmp_path):
    for life in range(9):
        (tmp_path / str(life)).touch()
    lines: list[str] = []
    loader = create_dataloader(Mortal(tmp_path), 4, num_workers=2, context=QUICK, tell=lines.append)
    with pytest.raises(LoaderError, match=r"after 3 others had been replaced.*oom.*fewer workers"):
        list(loader)
    assert len(lines) == 3
    assert worker_pids(loader) == []


def test_a_stuck_worker_is_reported_with_its_stack():
    timeout = 1 if QUICK == "fork" else 20  # a spawned worker has to start within it
    loader = create_dataloader(Stuck(), 4, num_workers=2, context=QUICK, timeout=timeout)
    iterator = iter(loader)
    next(iterator)
    pids = worker_pids(loader)
    began = time.monotonic()
    with pytest.raises(LoaderError) as caught:
        list(iterator)
    assert 0.5 * timeout < time.monotonic() - began < timeout + 9
    message = str(caught.value)
    assert f"gave no batch for {timeout} s" in message
    assert "8, 9, 10, 11" in message
    assert "__getitem__" in message  # where it was
    assert "raise the loader's timeout" in message
    assert alive(pids) == []


def test_a_batch_that_was_slow_but_came_is_not_taken_for_the_one_that_is_stuck():
    """Nor is a worker that has nothing to do."""
    loader = create_dataloader(Numbers(8), 4, num_workers=1, context=QUICK, timeout=0.6)
    batches = list(loader)
    assert len(batches) == 2
    time.sleep(1)
    assert loader.iterator.pool._workers[0].config.stacks.text() == ""
    loader.close()


def test_workers_know_who_they_are_in_every_batch():
    loader = create_dataloader(Informed(), 4, num_workers=2, context=QUICK, seed=3)
    for number, batch in enumerate(loader):
        assert batch["worker"].tolist() == [number % 2] * 4
        assert batch["workers"].tolist() == [2] * 4
        seeds = batch["seed"]
        assert (seeds == loader._seed + number % 2).all()
    loader.close()


@pytest.mark.parametrize("odd", [torch.ones(3, 8, 8), torch.ones(3, 8, 9, dtype=torch.uint8)])
def test_images_that_differ_within_a_batch_are_refused_not_cast(odd):
    loader = create_dataloader(Mixed(odd), 4, num_workers=1, context=QUICK)
    with pytest.raises((LoaderError, RuntimeError), match=r"differ in shape or type|stack expects"):
        list(loader)
    loader.close()


def test_a_worker_that_cannot_start_says_so_at_once(tmp_path):
    (tmp_path / "lives").mkdir()
    (tmp_path / "lives" / "1").touch()
    lines: list[str] = []
    for data, settings, error, match in (
        (Unloadable(), {"context": "forkserver"}, LoaderError, "could not start"),
        (Numbers(), {"worker_init_fn": leave}, LoaderError, "could not start"),
        (Numbers(), {"worker_init_fn": refuse}, ValueError, "worker 0 is refused"),
    ):
        with pytest.raises(error, match=match):
            list(create_dataloader(data, 4, **{"num_workers": 1, "context": QUICK, "tell": lines.append, **settings}))
    assert lines == []
    init = functools.partial(leave_the_second_time, tmp_path / "started")  # nor can one that takes a dead one's place
    data = Mortal(tmp_path / "lives")
    with pytest.raises(LoaderError, match="could not start"):
        list(create_dataloader(data, 4, num_workers=1, context=QUICK, worker_init_fn=init, tell=lines.append))
    assert len(lines) == 1


def twice(samples: list[dict]) -> dict:
    """A collation that does more with images than to stack them."""
    images = torch.stack([sample["img"] for sample in samples])
    return {"images": images, "sum": images.sum()}


def test_a_collation_of_the_users_own_sees_the_images():
    for batch in create_dataloader(Widths(24), 4, num_workers=2, context=QUICK, collate_fn=twice):
        assert batch["sum"] == batch["images"].sum()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_gives_fewer_batches_than_it_says_ends_the_epoch(workers):
    class Short(list):
        def __len__(self) -> int:
            return 6

    loader = create_dataloader(Numbers(), num_workers=workers, context=QUICK, batch_sampler=Short([[0, 1], [2, 3]]))
    for _ in range(2):
        assert indices(loader) == [0, 1, 2, 3]
    loader.close()


def test_shared_lists_are_named_by_the_caller():
    loader = create_dataloader(Numbers(200), 50, num_workers=1, share=["items"])
    assert [len(batch["name"]) for batch in loader] == [50] * 4
    loader.close()


def test_batches_that_are_kept_stay_as_they_were_and_memory_of_others_is_used_again():
    loader = create_dataloader(Numbers(80), 4, num_workers=1, context=QUICK, prefetch=2)
    kept = list(loader)
    assert len({batch["img"].data_ptr() for batch in kept}) == 20
    for batch in kept:
        assert batch["img"][:, 0, 0].tolist() == batch["index"].tolist()
    del kept, batch
    used = set()
    for batch in loader:
        used.add(batch["img"].data_ptr())
        last = batch if batch["index"][0] == 76 else None
        del batch
    loader.close()
    assert last["img"][:, 0, 0].tolist() == [76, 77, 78, 79]  # it outlives its worker
    if HAS_MEMFD:
        assert len(used) <= 20


@needs_memfd
def test_batches_of_changing_shapes_take_no_more_memory_from_epoch_to_epoch():
    """Rectangular validation is such a case: every batch has the shape that suits its images."""
    workers, prefetch, keep = 2, 2, 25
    loader = create_dataloader(Widths(160), 4, num_workers=workers, context=QUICK, prefetch=prefetch)
    before = torch.tensor(shared_memory())
    ours, theirs = [], []
    for _ in range(3):
        kept: list[dict] = []
        ours.append(torch.zeros(3, dtype=torch.int64))
        theirs.append(torch.zeros(3, dtype=torch.int64))
        for batch in loader:
            assert (batch["img"].flatten(1) == (batch["index"] % 256)[:, None]).all()
            if len(kept) < keep:
                kept.append(batch)
            elif kept:
                kept.clear()
            if not kept:
                ours[-1] = torch.maximum(ours[-1], torch.tensor(shared_memory()) - before)
            theirs[-1] = torch.maximum(theirs[-1], batch["memory"].max(0).values - before)
            del batch
    kept.clear()
    loader.close()
    segments = prefetch + 4
    for found, most in ((ours, workers * segments + 1), (theirs, segments + 1)):
        for count, nbytes, descriptors in torch.stack(found).tolist():
            assert count <= most
            assert nbytes <= most * 4 * Widths.largest + most * 4096  # whole pages
            assert descriptors <= 1  # on its way
    assert shared_memory()[0] <= before[0]


class Endless(PolicyLoader):
    """One iterator for all epochs, as Ultralytics has it."""

    endless = True

    def _indices(self):
        while True:
            yield from self.batch_sampler


def endless(workers: int, seed: int = 5) -> Endless:
    policy = LoaderPolicy(context=QUICK, workers=workers, insist=True, reproducible="strict", timeout=60)
    generator = torch.Generator().manual_seed(seed)
    return Endless(Numbers(22), policy=policy, batch_size=4, shuffle=True, generator=generator, num_workers=workers)


def epoch(loader: Endless) -> list:
    return [(batch["index"].tolist(), fingerprint(batch)) for batch in loader]


def test_what_workers_drew_ahead_does_not_count_where_batches_are_strict_and_what_was_given_does():
    seen = []
    for workers, first in ((0, 1), (2, 1), (0, 2)):
        loader = endless(workers)
        for _ in range(first):
            epoch(loader)
        loader.reset()  # as between the epochs with and without mosaics
        assert loader.iterator is None
        seen.append([epoch(loader), epoch(loader)])
        loader.close()
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]
    assert seen[2][0] not in seen[0]
