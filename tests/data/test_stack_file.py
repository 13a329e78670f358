"""Files for the stacks of stuck workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from pathlib import Path

import pytest

from yolo_rocm.data import stack_file
from yolo_rocm.data.stack_file import StackFile

pytestmark = pytest.mark.once


def write(file: StackFile, text: bytes) -> None:
    with file.emptied() as stream:
        os.write(stream.fileno(), text)


@pytest.mark.skipif(os.name != "posix", reason="files have names on Windows")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_worker_writes_is_read_and_nothing_has_a_name(method, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = StackFile()
    for text in (b"a long first text\n", b"second"):
        process = multiprocessing.get_context(method).Process(target=write, args=(file, text))
        process.start()
        process.join()
        assert list(tmp_path.iterdir()) == []
    assert file.text() == "second"
    file.close()
    assert file.text() == ""


def test_files_with_names_are_removed_and_so_are_those_that_were_left_behind(tmp_path, monkeypatch):
    """As on Windows, which lets nobody remove a file that is open; here nobody has the old one open either."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stack_file, "_POSIX", False)
    left, other = tmp_path / "yolo-rocm-stacks-old", tmp_path / "yolo-rocm-other"
    left.touch()
    other.touch()
    file = StackFile()
    assert not left.exists()
    theirs = pickle.loads(pickle.dumps(file))
    write(theirs, b"stacks")
    assert file.text() == "stacks"
    theirs._file.close()
    file.close()
    assert list(tmp_path.iterdir()) == [other]
    assert Path(tempfile.gettempdir()) == tmp_path
