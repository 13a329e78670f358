"""Files for the stacks of stuck workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile

import pytest

from yolo_rocm.data import stack_file
from yolo_rocm.data.stack_file import StackFile

pytestmark = pytest.mark.once


def write(file: StackFile, text: bytes) -> None:
    os.write(file.emptied().fileno(), text)


@pytest.mark.skipif(os.name != "posix", reason="files cannot be handed over on Windows")
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


def test_where_a_file_cannot_be_handed_over_the_terminal_has_the_stacks(monkeypatch, capfd):
    """As on Windows."""
    monkeypatch.setattr(stack_file.os, "name", "nt")
    file = pickle.loads(pickle.dumps(StackFile()))
    file.emptied().write("stacks")
    assert file.text() == ""
    file.close()
    assert capfd.readouterr().err == "stacks"
