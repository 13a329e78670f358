"""The loaders Ultralytics builds, while policies apply and afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.data import TensorDataset
from ultralytics.data import build
from ultralytics.data.dataset import YOLODataset

from yolo_rocm.data.policy import LoaderPolicy
from yolo_rocm.errors import LoaderError
from yolo_rocm.ultralytics_hooks.loaders import loaders_built_by, loaders_follow


def made(**arguments):
    return build.InfiniteDataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, num_workers=0, **arguments)


def test_the_newest_policy_decides_and_the_class_is_put_back_in_any_order():
    stock, one, two = build.InfiniteDataLoader, LoaderPolicy(), LoaderPolicy()
    first, second = loaders_follow(one), loaders_follow(two)
    first.__enter__()
    assert made().policy is one
    second.__enter__()
    assert made().policy is two
    first.__exit__(None, None, None)
    assert made().policy is two
    second.__exit__(None, None, None)
    assert build.InfiniteDataLoader is stock
    assert type(made()) is stock


def test_loaders_end_with_their_policy_unless_it_only_built_them():
    with loaders_built_by(LoaderPolicy()):
        built = made()
    next(iter(built))
    with loaders_follow(LoaderPolicy()):
        followed = made()
        next(iter(followed))
    assert followed.iterator is None
    assert built.iterator is not None
    built.close()


def test_images_go_straight_into_the_batch_only_with_a_collation_that_is_known():
    with loaders_built_by(LoaderPolicy()):
        for collate, known in ((lambda samples: samples, False), (None, True), (YOLODataset.collate_fn, True)):
            assert made(collate_fn=collate)._stacks_images() is known


def test_the_end_of_a_policy_leaves_alone_what_a_run_of_another_thread_is_reading():
    with ThreadPoolExecutor(1) as other, loaders_follow(LoaderPolicy()):
        with loaders_follow(LoaderPolicy()):
            batches = iter(other.submit(made).result())
            next(batches)
        assert len(list(batches)) == 1


def test_a_loader_that_is_closed_while_it_is_read_says_so():
    with loaders_follow(LoaderPolicy()):
        loader = made()
        batches = iter(loader)
        next(batches)
        loader.close()
        with pytest.raises(LoaderError, match="closed while its batches were being read"):
            next(batches)
