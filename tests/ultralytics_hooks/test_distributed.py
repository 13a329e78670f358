"""What ranks of one training agree on without a network."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from yolo_rocm.data.loader import passes
from yolo_rocm.data.policy import shuffles
from yolo_rocm.errors import ConfigError
from yolo_rocm.ultralytics_hooks import distributed

pytestmark = pytest.mark.once


def test_indices_drawn_ahead_are_those_of_their_epoch():
    sampler = DistributedSampler(range(8), 2, 0, shuffle=True, seed=3)
    drawn = passes(BatchSampler(sampler, 2, drop_last=False), sampler)
    ahead = [next(drawn) for _ in range(6)]  # three epochs, without a word from the training
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert [*ahead[2 * epoch], *ahead[2 * epoch + 1]] == list(sampler)
    quiet = DistributedSampler(range(8), 2, 0, shuffle=False)
    assert [shuffles(each) for each in (sampler, quiet, SequentialSampler(range(4)), None)] == [True] + [False] * 3


def test_a_run_folder_that_only_rank_0_can_see_is_refused(tmp_path, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(distributed.time, "monotonic", lambda: 4.0 * next(clock))
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    with pytest.raises(ConfigError, match=r"cannot see the run folder .*project=/a/shared/folder"):
        distributed._require_folder(tmp_path)
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: (tmp_path / "args.yaml").touch())
    distributed._require_folder(tmp_path)  # a slow network file system
