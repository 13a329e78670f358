"""Methods of one trainer that are replaced for a while."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from yolo_rocm.ultralytics_hooks.layouts import first_batch_kept
from yolo_rocm.ultralytics_hooks.trainers import in_place_of

pytestmark = pytest.mark.once


def test_the_first_batch_is_kept_once_and_the_trainer_gets_its_method_back():
    trainer = SimpleNamespace(preprocess_batch=dict)
    with first_batch_kept(trainer) as kept:
        assert kept() is None
        assert trainer.preprocess_batch({"number": 1}) == {"number": 1}
        assert trainer.preprocess_batch is dict
        assert [kept(), kept()] == [{"number": 1}, None]
    with first_batch_kept(trainer):
        assert trainer.preprocess_batch is not dict
    assert trainer.preprocess_batch is dict


def test_who_replaces_it_meanwhile_keeps_theirs():
    trainer = type("Trainer", (), {"optimizer_step": print})()
    with in_place_of(trainer, "optimizer_step", len):
        assert trainer.optimizer_step is len
    assert vars(trainer) == {}
    with in_place_of(trainer, "optimizer_step", len):
        trainer.optimizer_step = abs
    assert trainer.optimizer_step is abs
