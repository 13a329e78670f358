"""Every DataLoader of a process under one policy, and back again."""

from __future__ import annotations

import gc

import pytest
from torch.utils.data import DataLoader, IterableDataset

from yolo_rocm import ConfigError, create_dataloader, patch_dataloader
from yolo_rocm.data import create
from yolo_rocm.data.main_guard import DEFAULT_METHOD

from ..tables import each_row
from .samples import Numbers


def settings(loader: DataLoader) -> tuple:
    context = loader.multiprocessing_context
    method = None if context is None else context.get_start_method()
    return method, loader.persistent_workers, loader.timeout


def test_loaders_with_workers_follow_until_it_is_undone():
    handle = patch_dataloader(timeout=30)
    try:
        assert settings(DataLoader(Numbers(), 4, num_workers=1)) == (DEFAULT_METHOD, True, 30)
        assert settings(DataLoader(Numbers(), 4, False, None, None, 2)) == (DEFAULT_METHOD, True, 30)  # by position
        assert settings(DataLoader(Numbers(), 4)) == (None, False, 0)
    finally:
        handle.undo()
    assert settings(DataLoader(Numbers(), 4, num_workers=1)) == (None, False, 0)
    handle.undo()


def test_what_is_undone_is_torchs_own_again():
    original = DataLoader.__init__
    outer, inner = patch_dataloader("spawn"), patch_dataloader("forkserver")
    assert settings(DataLoader(Numbers(), num_workers=1))[0] == "forkserver"
    outer.undo()
    assert settings(DataLoader(Numbers(), num_workers=1))[0] == "forkserver"
    inner.undo()
    assert DataLoader.__init__ is original


def test_a_patch_stays_where_nobody_keeps_its_handle():
    original = DataLoader.__init__
    patch_dataloader()
    gc.collect()
    assert DataLoader.__init__ is not original
    for handle in list(create._patches):
        handle.undo()
    assert DataLoader.__init__ is original
    assert not create._patches


def test_what_the_caller_sets_stays():
    with patch_dataloader():
        loader = DataLoader(
            Numbers(), 4, num_workers=1, multiprocessing_context="fork", persistent_workers=False, timeout=5
        )
        assert settings(loader) == ("fork", False, 5)


def test_torchs_own_loader_works_with_our_workers_and_aborts_none(capfd):
    with patch_dataloader():
        loader = DataLoader(Numbers(80), 4, num_workers=1)
        batches = iter(loader)
        assert next(batches)["index"].tolist() == [0, 1, 2, 3]
        workers = [worker._popen for worker in batches._workers]
        batches._shutdown_workers()
        assert [worker.returncode for worker in workers] == [0]
    assert "terminate" not in capfd.readouterr().err


def test_what_is_no_map_needs_no_batch():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    assert list(create_dataloader(Stream(), None, num_workers=0)) == [0, 1, 2]
    assert settings(create_dataloader(Stream(), 3, num_workers=1)) == (DEFAULT_METHOD, True, 120)
    listed = create_dataloader(list(range(5)), None, batch_sampler=[[0, 1], [4]])  # how many workers is its to find out
    assert [len(batch) for batch in listed] == [2, 1]
    listed.close()


@each_row(
    ("name", "value", "why"),
    [
        ("context", "thread", "allowed: spawn, forkserver, fork"),
        ("reproducible", "very", "allowed: worker, strict"),
        ("pin_memory", "yes", "allowed: True, False, auto"),
        ("batch_size", None, "Give a number"),
    ],
)
def test_wrong_values_are_refused_by_the_name_of_their_argument(name, value, why):
    with pytest.raises(ConfigError, match=f"^{name}={value!r}.*{why}"):
        create_dataloader(Numbers(), **{"batch_size": 4, name: value})
