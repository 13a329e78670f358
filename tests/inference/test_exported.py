"""Exports: once, beside the weights, whole or not at all; again when stale; nothing left after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from yolo_rocm.errors import ExportError
from yolo_rocm.inference import exported as module
from yolo_rocm.inference.exported import exported, put_in_place
from yolo_rocm.utils.child_process import ChildResult

pytestmark = pytest.mark.once
SIZE = {"imgsz": 32}


@pytest.fixture
def exports(monkeypatch):
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
    return {path.name for path in folder.rglob("*") if path.name != ".lock"}


def test_it_is_made_once_beside_the_weights_or_in_the_cache(file, exports, tmp_path, monkeypatch):
    first = exported(file, "ncnn", SIZE)
    assert (exported(file, "ncnn", SIZE), len(exports)) == (first, 1)
    assert first.parent.parent == file.parent / "busy_yolo_rocm"
    assert left_in(first.parent) == {"busy_ncnn_model", "model.ncnn.bin", "made_from.json"}
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "problem_with", lambda folder: OSError("read-only"))
    assert tmp_path / "cache" in exported(file, "ncnn", SIZE).parents


@pytest.mark.parametrize("change", ["weights", "facts", "product"])
def test_what_is_stale_or_damaged_is_made_again(file, exports, change):
    first = exported(file, "ncnn", SIZE)
    if change == "weights":
        file.write_bytes(b"trained on")
    elif change == "facts":
        (first.parent / "made_from.json").write_text("{")
    else:
        first.rename(first.with_name("away"))
    again = exported(file, "ncnn", SIZE)
    assert (again, (again / "model.ncnn.bin").read_text()) == (first, "2")


def test_a_failed_export_leaves_nothing_and_the_old_one_stays(file, exports, monkeypatch):
    old = exported(file, "ncnn", SIZE)
    file.write_bytes(b"trained on")

    def fail(name, settings, limit_s):
        (Path(settings["folder"]) / "half").write_text("half")
        return ChildResult(error="the disk is full ([Errno 28] No space left on device)")

    monkeypatch.setattr(module, "run_module", fail)
    with pytest.raises(ExportError, match=r"busy\.pt cannot be exported to ncnn: the disk is full"):
        exported(file, "ncnn", SIZE)
    assert (old / "model.ncnn.bin").read_text() == "1"
    assert not {name for name in left_in(file.parent) if name == "half" or name.startswith(".export")}


def test_a_whole_folder_takes_the_place_of_another(tmp_path):
    new, place = tmp_path / "new", tmp_path / "place"
    for folder, text in ((new, "new"), (place, "old")):
        folder.mkdir()
        (folder / "file").write_text(text)
    put_in_place(new, place)
    assert left_in(tmp_path) == {"place", "file"}
    with pytest.raises(ExportError, match="nothing can be written"):
        put_in_place(tmp_path / "nothing", place)
    assert (place / "file").read_text() == "new"
