"""The loader policy over DataLoader arguments, and over the loaders Ultralytics builds."""

from __future__ import annotations

import pytest

import yolo_rocm
from yolo_rocm.data.loader import LoaderPolicy

from .test_training import OURS, QUICK

GIVEN = {"dataset": range(100), "batch_size": 10, "num_workers": 3, "pin_memory": True, "prefetch_factor": 4}


def test_a_policy_sets_what_it_knows():
    result = LoaderPolicy(context="spawn", workers=1, pin_memory=False, prefetch=2, timeout=30).apply(GIVEN)
    assert result == {
        **GIVEN,
        "num_workers": 1,
        "pin_memory": False,
        "prefetch_factor": 2,
        "timeout": 30,
        "multiprocessing_context": "spawn",
        "persistent_workers": True,
    }


def test_an_empty_policy_leaves_the_callers_choice():
    assert LoaderPolicy().apply(GIVEN) == {**GIVEN, "timeout": 0, "persistent_workers": True}


def test_no_workers_where_the_caller_wants_none_unless_the_user_insists():
    none = {**GIVEN, "num_workers": 0, "prefetch_factor": None}
    policy = LoaderPolicy(context="spawn", workers=4, timeout=5)
    assert policy.apply(none) == {k: v for k, v in none.items() if k != "prefetch_factor"}
    assert LoaderPolicy(context="spawn", workers=4, insist=True).apply(none)["num_workers"] == 4


def test_never_more_workers_than_batches():
    assert LoaderPolicy(workers=64, insist=True).apply(GIVEN)["num_workers"] == 10


def test_pinned_memory_needs_a_gpu():
    import torch

    assert LoaderPolicy(pin_memory=True).apply(GIVEN)["pin_memory"] == torch.cuda.is_available()


@pytest.mark.timeout(120)
def test_ultralytics_loaders_follow_an_explicit_setting_on_a_cpu(made_data, tmp_path):
    from ultralytics import YOLO
    from ultralytics.data.build import InfiniteDataLoader

    yolo, seen = YOLO("yolov8n.yaml"), {}
    rocm = {**OURS, "loader": {"context": "spawn", "workers": 1, "timeout": 60}}
    yolo_rocm.register(yolo, "cpu", rocm)

    def note(trainer) -> None:
        loader = trainer.train_loader
        assert isinstance(loader, InfiniteDataLoader)
        context = loader.multiprocessing_context
        seen.update(workers=loader.num_workers, start=context.get_start_method(), timeout=loader.timeout)

    yolo.add_callback("on_train_start", note)
    yolo.train(data=str(made_data()), project=str(tmp_path), **{**QUICK, "epochs": 1, "val": False})
    assert seen == {"workers": 1, "start": "spawn", "timeout": 60}
