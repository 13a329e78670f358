"""Checkpoints are the old or the new one, whole; a run folder that cannot be written is refused before the run."""

from __future__ import annotations

import errno
import os
import pickle
import re
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

import yolo_rocm
from yolo_rocm.errors import CheckpointError
from yolo_rocm.session.checkpoints import Checkpoints
from yolo_rocm.session.given import RunCommand
from yolo_rocm.ultralytics_hooks import checkpoints
from yolo_rocm.ultralytics_hooks.checkpoints import whole_runs
from yolo_rocm.utils import atomic

from ..small_model import small_model

resource = pytest.importorskip("resource", reason="the limit of a file's size is a thing of POSIX")
QUICK = {"imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "seed": 0, "verbose": False}


@contextmanager
def files_no_larger_than(size: int):
    """Make the kernel refuse the bytes of a file beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Trainer:
    """As much of a trainer as is asked before it has built anything."""

    def __init__(self, folder: Path) -> None:
        self.wdir, self.last, self.best = folder, folder / "last.pt", folder / "best.pt"
        self.epoch, self.epochs, self.stop, self.callbacks = 0, 3, False, {}


@pytest.fixture
def kept(tmp_path):
    trainer = Trainer(tmp_path)
    return trainer, Checkpoints(trainer, RunCommand(("preset=cpu",)))


@pytest.fixture
def paths(kept):
    return kept[0]


def test_a_checkpoint_gets_its_name_when_it_is_whole_and_its_path_pickles_as_an_ordinary_one(paths, monkeypatch):
    replace, seen = os.replace, []

    def watched(source, target):
        seen.append((Path(target).name, Path(target).exists() and Path(target).read_bytes(), Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", watched)
    for data in (b"old", b"newer"):
        assert paths.last.write_bytes(data) == len(data)
    (paths.wdir / "epoch3.pt").write_bytes(b"third")
    assert seen[1:] == [("last.pt", b"old", b"newer"), ("epoch3.pt", False, b"third")]
    for path in (paths.last, paths.wdir / "epoch1.pt"):
        data = pickle.dumps({"path": path})
        assert b"yolo_rocm" not in data
        assert type(pickle.loads(data)["path"]) is type(Path())
        assert isinstance(path, Path)


@pytest.fixture(scope="module")
def crowded(made_data, tmp_path_factory):
    """Train until files may be no larger than half of last.pt; return the folder and the error."""
    from ultralytics import YOLO

    folder = tmp_path_factory.mktemp("crowded")
    yolo = YOLO(small_model())
    handle = yolo_rocm.register(yolo, "cpu", {"conv": {"engine": "gemm"}})
    with ExitStack() as inside:

        def crowd(trainer) -> None:
            if trainer.epoch == 2:
                inside.enter_context(files_no_larger_than(trainer.last.stat().st_size // 2))

        yolo.add_callback("on_train_epoch_end", crowd)
        with pytest.raises(CheckpointError) as caught:
            yolo.train(data=str(made_data()), project=str(folder), name="run", epochs=4, optimizer="AdamW", **QUICK)
    handle.remove()
    return folder / "run", str(caught.value)


@pytest.mark.once
def test_a_full_disk_says_what_is_whole_and_how_to_go_on(crowded):
    folder, message = crowded
    last = folder / "weights" / "last.pt"
    assert f"cannot write {last}: File too large; " in message
    assert re.search("MiB are needed.*MiB are free", message)
    assert f"{last} is whole and holds epoch 2." in message
    assert f"yolo-rocm train model={last} preset=cpu rocm.conv.engine=gemm device=cpu resume=true" in message
    assert torch.load(last, weights_only=False)["epoch"] == 1
    assert {path.name for path in last.parent.iterdir()} <= {"last.pt", "best.pt"}


def test_any_other_file_that_does_not_fit_is_named_with_how_to_go_on(kept, tmp_path):
    trainer, checkpoints_of_run = kept
    full = OSError(errno.ENOSPC, "No space left on device", "labels.jpg")
    message = str(checkpoints_of_run.no_room(full))
    assert message.startswith("cannot write labels.jpg: No space left on device; ")
    assert "MiB are free in the folder of the run. No epoch had been saved." in message
    assert "yolo-rocm" not in message
    trainer.last.write_bytes(b"first")
    going_on = f"yolo-rocm train model={tmp_path / 'last.pt'} preset=cpu resume=true"
    assert str(checkpoints_of_run.no_room(full)).endswith(f"holds epoch 1. Make room, then go on: {going_on}")
    assert f"a file of {tmp_path.parent}" in str(checkpoints_of_run.no_room(OSError(errno.ENOSPC, "full")))


def test_the_optimizer_goes_in_one_step_or_the_checkpoint_stays(crowded, tmp_path, monkeypatch):
    from ultralytics.engine import trainer

    last, strip = tmp_path / "last.pt", trainer.strip_optimizer
    last.write_bytes((crowded[0] / "weights" / "last.pt").read_bytes())

    def fail(f, s="", *args, **kwargs):
        Path(s).write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(trainer, "strip_optimizer", fail)
        with whole_runs():
            trainer.strip_optimizer(last)
    with whole_runs():
        with monkeypatch.context() as full, pytest.raises(CheckpointError, match=r"complete, but.*free"):
            full.setattr(checkpoints, "free_bytes", lambda folder: 1 << 10)
            trainer.strip_optimizer(last)
        assert torch.load(last, weights_only=False)["epoch"] == 1
        trainer.strip_optimizer(last)
    stripped = torch.load(last, weights_only=False)
    assert (stripped["optimizer"], stripped["epoch"]) == (None, -1)
    assert trainer.strip_optimizer is strip
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_a_run_folder_that_cannot_be_written_is_refused_before_anything_is_made(made_data, tmp_path):
    project = tmp_path / "deep" / "project"
    project.parent.write_text("a file where a folder should be")
    refused = pytest.raises(
        CheckpointError, match=rf"cannot be written to {project}.*(Not a directory|File exists).*project=FOLDER"
    )
    with refused:
        yolo_rocm.train(small_model(), data=made_data(), preset="cpu", project=str(project), epochs=1, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
