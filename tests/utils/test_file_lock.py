"""Locks between threads and processes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from yolo_rocm.utils import file_lock
from yolo_rocm.utils.file_lock import locked

pytestmark = pytest.mark.once

HOLD = """
import sys, time
from yolo_rocm.utils.file_lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process, which holds the file."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "a.lock")], stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"held"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_one_waits_for_the_other_process_and_gets_it_when_that_dies(tmp_path, other):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"a\.lock for 0\.2 s"), locked(tmp_path / "a.lock", 0.2):
        pytest.fail("it is held by somebody else")
    assert time.monotonic() - began >= 0.2
    other.kill()
    with locked(tmp_path / "a.lock", 10):
        pass


def test_it_is_free_after_an_error_and_leaves_no_open_file(tmp_path):
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), locked(tmp_path / "a.lock"):
            raise KeyboardInterrupt
        with pytest.raises(TimeoutError), locked(tmp_path / "a.lock"), locked(tmp_path / "a.lock", 0):
            pytest.fail("it is held")
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_process_that_was_forked_meanwhile_does_not_hold_it(tmp_path):
    """As workers of a loader are, which live on."""
    context = multiprocessing.get_context("fork")
    over = context.Event()
    with locked(tmp_path / "a.lock"):
        child = context.Process(target=over.wait)
        child.start()
    try:
        with locked(tmp_path / "a.lock", 0):
            pass
    finally:
        over.set()
        child.join()


def test_without_locks_nobody_waits(tmp_path, monkeypatch):
    def take(file):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(file_lock, "_take", take)
    monkeypatch.setattr(file_lock, "_release", lambda file: pytest.fail("nothing is held"))
    with locked(tmp_path / "a.lock"), locked(tmp_path / "a.lock"):
        pass
