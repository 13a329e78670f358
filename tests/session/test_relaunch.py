"""A training that is started again: from which checkpoint, with which batch, and when it has nothing left to do."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from yolo_rocm.errors import ConfigError
from yolo_rocm.session import relaunch
from yolo_rocm.session.failures import is_lost_rank
from yolo_rocm.session.relaunch import start
from yolo_rocm.utils.process_group import Place

pytestmark = pytest.mark.once

TIMEOUT_S = 60


@pytest.fixture
def yolo() -> SimpleNamespace:
    """A YOLO object that a new training begins with."""
    return SimpleNamespace(task="detect")


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """This process was started by a launcher, whose notes are in a folder of the test."""
    (tmp_path / "logs" / "attempt_0").mkdir(parents=True)
    errors = str(tmp_path / "logs" / "attempt_0" / "0" / "error.json")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_ERROR_FILE": errors}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A run with a checkpoint that holds three epochs, or as many as `held` says."""
    held = {"epoch": 2, "optimizer": {}}
    last = tmp_path / "runs" / "mine" / "weights" / "last.pt"
    last.parent.mkdir(parents=True)
    last.touch()
    monkeypatch.setattr(
        "yolo_rocm.ultralytics_hooks.models.load_model", lambda path: SimpleNamespace(ckpt=held, path=path)
    )
    return SimpleNamespace(last=last, folder=last.parents[1], held=held)


def test_resume_auto_goes_on_from_the_run_of_its_name_or_begins_it(yolo, checkpoint, tmp_path):
    asked = {"project": str(checkpoint.folder.parent), "name": "mine", "resume": "auto", "epochs": 5, "device": "cpu"}
    begin = start(yolo, asked, TIMEOUT_S, relaunched=False)
    assert (begin.yolo.path, begin.complete) == (checkpoint.last, None)
    assert begin.arguments == {"device": "cpu", "resume": True}  # the rest is in the checkpoint
    checkpoint.held.update(epoch=-1, optimizer=None)
    assert start(yolo, asked, TIMEOUT_S, relaunched=False).complete == checkpoint.folder
    begin = start(yolo, {**asked, "name": "other"}, TIMEOUT_S, relaunched=False)
    # The same folder again, also after a start that saved nothing.
    given = {"project": str(checkpoint.folder.parent), "name": "other", "epochs": 5, "device": "cpu", "exist_ok": True}
    assert (begin.yolo, begin.arguments) == (yolo, given)
    with pytest.raises(ConfigError, match=r"resume=auto .* give a name="):
        start(yolo, {"resume": "auto"}, TIMEOUT_S, relaunched=False)


@pytest.mark.parametrize(("then", "batch"), [(4, 16), (2, 32), (1, None)], ids=["of 4", "of 2", "of as many"])
def test_fewer_ranks_get_as_many_images_each(yolo, checkpoint, then, batch):
    (checkpoint.folder / "rocm.json").write_text(json.dumps({"ranks": then, "batch": {"asked": 128, "used": 64}}))
    asked = {"project": str(checkpoint.folder.parent), "name": "mine", "resume": "auto"}
    assert start(yolo, asked, TIMEOUT_S, relaunched=False).arguments.get("batch") == batch


def test_a_launcher_that_starts_again_is_known_by_its_note(yolo, checkpoint, launched, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    relaunch.write_note(checkpoint.folder)  # the first rank of a machine leaves it
    monkeypatch.setenv("LOCAL_RANK", "0")
    begin = start(yolo, {"epochs": 5}, TIMEOUT_S, relaunched=True)
    assert begin.arguments == {"epochs": 5}  # the first start
    relaunch.write_note(checkpoint.folder)
    for told in ({"epochs": 5}, {"epochs": 5, "resume": None}):
        assert start(yolo, told, TIMEOUT_S, relaunched=True).yolo.path == checkpoint.last
    for told, once in (
        ({"resume": True}, True),
        ({"epochs": 5}, False),
    ):  # a word of the user; a script of many trainings
        assert start(yolo, told, TIMEOUT_S, relaunched=once).yolo is yolo
    relaunch.remove_note()
    assert start(yolo, {}, TIMEOUT_S, relaunched=True).yolo is yolo


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:18610", True),
        ("NCCL error in: NCCLUtils.hpp:268\nncclRemoteError: A call failed possibly due to a network error", True),
        ("[Errno 104] Connection reset by peer", False),  # a download
        ("CUDA out of memory", False),
    ],
)
def test_the_loss_of_a_rank_is_told_from_other_errors(monkeypatch, text, lost):
    assert not is_lost_rank(RuntimeError(text))  # one process trains
    monkeypatch.setattr("yolo_rocm.ultralytics_hooks.ranks.place_of_rank", lambda: Place(1, 1, 4, 2))
    assert is_lost_rank(RuntimeError(text)) is lost
