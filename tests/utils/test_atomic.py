"""The one writer of whole files; what it does for checkpoints is in tests/session/test_checkpoints.py."""

from __future__ import annotations

import os

import pytest

from yolo_rocm.utils import atomic
from yolo_rocm.utils.atomic import problem_with, write_file

pytestmark = pytest.mark.once


@pytest.mark.parametrize("content", ["für alle\n", "für alle\n".encode(), memoryview("für alle\n".encode())])
def test_text_and_bytes(tmp_path, content):
    (tmp_path / "file").write_text("old, and longer than the new one")
    assert write_file(tmp_path / "file", content)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": "für alle\n".encode()}


def test_a_function_that_writes_nothing_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    assert not write_file(tmp_path / "file", lambda staged: None)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "old"}


@pytest.mark.parametrize("where", ["content", "replace"])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, where):
    def fail(*_):
        raise OSError("no")

    def write(staged):
        staged.write_text("new")
        if where == "content":
            fail()

    if where == "replace":
        monkeypatch.setattr(atomic.os, "replace", fail)
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="no"):
        write_file(tmp_path / "file", write)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"file": "old"}


def test_only_what_must_survive_a_power_failure_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(atomic.os, "fsync", synced.append)
    write_file(tmp_path / "file", "new")
    assert synced == []
    write_file(tmp_path / "file", "new", durable=True)
    assert len(synced) == (2 if os.name == "posix" else 1)  # the file, and its name in the folder


def test_a_folder_is_tried_and_left_as_it_was(tmp_path):
    assert problem_with(tmp_path / "new/one") is None
    assert list(tmp_path.iterdir()) == []
    assert isinstance(problem_with(tmp_path / ("x" * 300)), OSError)  # nobody can even ask whether it is there
