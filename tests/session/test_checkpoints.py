"""Checkpoints are the old or the new one, whole; a run folder that cannot be written is refused before the run."""

from __future__ import annotations

import errno
import os
import pickle
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

import yolo_rocm
from yolo_rocm.errors import CheckpointError
from yolo_rocm.session.checkpoints import Checkpoints
from yolo_rocm.session.run_command import RunCommand
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


def test_a_checkpoint_gets_its_name_when_it_is_whole(paths, tmp_path, monkeypatch):
    replace, seen = os.replace, []

    def watched(source, target):
        seen.append((Path(target).name, Path(target).exists() and Path(target).read_bytes(), Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", watched)
    for data in (b"old", b"newer"):
        assert paths.last.write_bytes(data) == len(data)
    (paths.wdir / "epoch3.pt").write_bytes(b"third")
    assert (paths.last.read_bytes(), (tmp_path / "epoch3.pt").read_bytes()) == (b"newer", b"third")
    assert seen[1:] == [("last.pt", b"old", b"newer"), ("epoch3.pt", False, b"third")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch3.pt", "last.pt"]


def test_the_paths_of_a_trainer_pickle_as_ordinary_ones(paths):
    for path in (paths.last, paths.wdir / "epoch1.pt"):
        data = pickle.dumps({"path": path})
        assert b"yolo_rocm" not in data
        assert type(pickle.loads(data)["path"]) is type(Path())
        assert isinstance(path, Path)


def test_what_does_not_fit_leaves_the_old_checkpoint(paths, tmp_path):
    paths.best.write_bytes(b"old")
    refused = pytest.raises(CheckpointError, match=r"best\.pt: File too large; 0\.0 MiB are needed")
    with files_no_larger_than(1 << 12), refused:
        paths.best.write_bytes(bytes(1 << 13))
    assert paths.best.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), KeyboardInterrupt()])
def test_nothing_is_left_when_the_last_step_fails(paths, tmp_path, monkeypatch, error):
    paths.last.write_bytes(b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(atomic.os, "replace", fail)
    with pytest.raises(CheckpointError if isinstance(error, OSError) else KeyboardInterrupt):
        paths.last.write_bytes(b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("last.pt", b"old")]


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
    assert "MiB are needed" in message
    assert "MiB are free" in message
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


@pytest.mark.parametrize("how", ["all epochs", "early"])
def test_the_last_epoch_leaves_its_evaluation_to_be_done(kept, tmp_path, how):
    trainer, checkpoints_of_run = kept
    trainer.epoch, trainer.stop = (2, False) if how == "all epochs" else (0, True)
    trainer.last.write_bytes(b"last")
    said = checkpoints_of_run.stopped("stopped")
    assert f"complete: {tmp_path / 'last.pt'} is whole and holds epoch {trainer.epoch + 1}, the last one." in said
    assert said.endswith(f"to repeat it: yolo-rocm val model={tmp_path / 'last.pt'} preset=cpu")
    trainer.best.write_bytes(b"best")
    assert checkpoints_of_run.stopped("stopped").endswith(f"val model={tmp_path / 'best.pt'} preset=cpu")
    checkpoints_of_run.finished()
    assert "yolo-rocm" not in checkpoints_of_run.stopped("stopped")


def test_stripping_is_one_step_too(crowded, tmp_path, monkeypatch):
    from ultralytics.engine import trainer
    from ultralytics.utils import LOGGER

    whole = (crowded[0] / "weights" / "last.pt").read_bytes()
    last, said, stock = tmp_path / "last.pt", [], trainer.strip_optimizer
    last.write_bytes(whole)

    def note(record):
        said.append(record.getMessage())
        return True

    with whole_runs():
        refused = pytest.raises(CheckpointError, match=r"the training is complete, but.*free")
        with monkeypatch.context() as full, refused:
            full.setattr(checkpoints, "free_bytes", lambda folder: 1 << 20)
            trainer.strip_optimizer(last)
        assert last.read_bytes() == whole
        for handler in LOGGER.handlers:
            handler.addFilter(note)
        try:
            with whole_runs():
                trainer.strip_optimizer(last)
        finally:
            for handler in LOGGER.handlers:
                handler.removeFilter(note)
        assert trainer.strip_optimizer is not stock
    assert trainer.strip_optimizer is stock
    stripped = torch.load(last, weights_only=False)
    assert (stripped["optimizer"], stripped["epoch"]) == (None, -1)
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]
    assert [line for line in said if f"Optimizer stripped from {last}, " in line and "partial" not in line]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), RuntimeError("broken"), KeyboardInterrupt()], ids=str)
def test_a_strip_that_fails_leaves_the_checkpoint_and_nothing_else(tmp_path, monkeypatch, error):
    from ultralytics.engine import trainer
    from ultralytics.utils import LOGGER

    last, filters = tmp_path / "last.pt", list(LOGGER.filters)
    last.write_bytes(b"whole")

    def fail(f, s="", *args, **kwargs):
        assert len(LOGGER.filters) == len(filters) + 1
        Path(s).write_bytes(b"half")
        raise error

    monkeypatch.setattr(trainer, "strip_optimizer", fail)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else CheckpointError
    with whole_runs(), pytest.raises(expected):
        trainer.strip_optimizer(last)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("last.pt", b"whole")]
    assert LOGGER.filters == filters


@pytest.mark.parametrize("occupied", [True, False])
def test_a_run_folder_that_cannot_be_written_is_refused_before_anything_is_made(
    made_data, tmp_path, monkeypatch, occupied
):
    project = tmp_path / "deep" / "project"
    if occupied:
        project.parent.write_text("a file where a folder should be")
        expected = "Not a directory|File exists"
    else:
        write = Path.write_bytes

        def refuse(self, data):
            if self.name == ".yolo-rocm-trial":
                raise OSError(errno.EROFS, "Read-only file system", str(self))
            return write(self, data)

        monkeypatch.setattr(Path, "write_bytes", refuse)
        expected = "Read-only file system"
    with pytest.raises(CheckpointError, match=rf"cannot be written to {project}.*({expected}).*project=FOLDER"):
        yolo_rocm.train(
            small_model(), data=made_data(), preset="cpu", project=str(project), name="run", epochs=1, **QUICK
        )
    assert [path.name for path in tmp_path.iterdir()] == (["deep"] if occupied else [])
