"""Exports: once, beside the weights, whole or not at all; again when stale; nothing left after a failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from yolo_rocm.errors import ExportError
from yolo_rocm.inference import exported as module
from yolo_rocm.inference.exported import exported, put_in_place
from yolo_rocm.utils.child_process import ChildResult

pytestmark = pytest.mark.once
SIZE = {"imgsz": 32}


@pytest.fixture
def made(monkeypatch):
    """Exports by a stand-in for the process; a list of those it has made."""
    calls = []

    def run(name, settings, limit_s):
        calls.append(settings)
        product = Path(settings["folder"]) / "busy_ncnn_model"
        product.mkdir()
        (product / "model.ncnn.bin").write_text(str(len(calls)))
        return ChildResult({"file": str(product)})

    monkeypatch.setattr(module, "run_module", run)
    return calls


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights" / "busy.pt"
    path.parent.mkdir()
    path.write_bytes(b"weights")
    return path


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.name not in (".lock",)}


def test_it_is_made_once(file, made):
    first, again = exported(file, "ncnn", SIZE), exported(file, "ncnn", SIZE)
    assert first.file == again.file
    assert (len(made), again.seconds) == (1, 0.0)
    assert first.file.parent.parent == file.parent / "busy_yolo_rocm"
    assert left_in(first.file.parent) == {"busy_ncnn_model", "model.ncnn.bin", "made_from.json"}


def test_other_weights_under_the_same_name_are_exported_again(file, made):
    old = exported(file, "ncnn", SIZE)
    file.write_bytes(b"trained on")
    new = exported(file, "ncnn", SIZE)
    assert new.file == old.file
    assert (new.file / "model.ncnn.bin").read_text() == "2"


@pytest.mark.parametrize("damage", ["facts", "product"])
def test_a_damaged_export_is_made_again(file, made, damage):
    first = exported(file, "ncnn", SIZE)
    if damage == "facts":
        (first.file.parent / "made_from.json").write_text("{")
    else:
        (first.file / "model.ncnn.bin").unlink()
        first.file.rmdir()
    assert (exported(file, "ncnn", SIZE).file / "model.ncnn.bin").read_text() == "2"


def test_a_failed_export_leaves_nothing_and_the_old_one_stays(file, made, monkeypatch):
    old = exported(file, "ncnn", SIZE)
    file.write_bytes(b"trained on")

    def fail(name, settings, limit_s):
        (Path(settings["folder"]) / "half").write_text("half")
        return ChildResult(error="the disk is full ([Errno 28] No space left on device)")

    monkeypatch.setattr(module, "run_module", fail)
    with pytest.raises(ExportError, match="the disk is full"):
        exported(file, "ncnn", SIZE)
    assert (old.file / "model.ncnn.bin").read_text() == "1"
    assert "half" not in left_in(file.parent)
    assert not [name for name in os.listdir(file.parent / "busy_yolo_rocm") if name.startswith(".export")]


def test_a_disk_without_room_is_told_before(file, made, monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda folder: 3)
    with pytest.raises(ExportError, match="Make room there"):
        exported(file, "ncnn", SIZE)
    assert made == []


def test_a_whole_folder_takes_the_place_of_another(tmp_path):
    new, place = tmp_path / "new", tmp_path / "place"
    for folder, text in ((new, "new"), (place, "old")):
        folder.mkdir()
        (folder / "file").write_text(text)
    put_in_place(new, place)
    assert (place / "file").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["place"]
    with pytest.raises(ExportError, match="cannot be written"):
        put_in_place(tmp_path / "nothing", place)
    assert (place / "file").read_text() == "new"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit to a file's size")
def test_a_disk_that_is_full_during_a_real_export(weights):
    """The limit of a file's size stands in for the disk: the system refuses to write on, in the middle of a file."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9 << 20, before[1]))  # the weights have 6 MB, what they become 12
    try:
        with pytest.raises(ExportError, match=r"busy\.pt cannot be exported to torchscript"):
            exported(weights, "torchscript", SIZE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert left_in(weights.parent) == {"busy.pt", "busy_yolo_rocm"}
