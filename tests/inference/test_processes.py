"""Processes that crash, hang, raise or fill the log: none takes the caller with it, and each is told apart."""

from __future__ import annotations

import sys
import time

import pytest

from yolo_rocm.inference.processes import run_apart

pytestmark = pytest.mark.once
CHILD = """
import os, sys, time
from yolo_rocm.errors import ConfigError
from yolo_rocm.inference.processes import answered
def main(settings):
    {body}
if __name__ == "__main__":
    answered(main)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(body, limit_s=60.0):
        (tmp_path / "a_child.py").write_text(CHILD.format(body=body))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return run_apart("a_child", {"x": 2}, limit_s)

    return run


def test_an_answer(run):
    ended = run("return {'twice': 2 * settings['x']}")
    assert (ended.answer, ended.error) == ({"twice": 4}, "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_names_the_signal_and_the_last_words(run):
    ended = run("sys.stderr.write('LLVM ERROR: Cannot select'); sys.stderr.flush(); os.abort()")
    assert "SIGABRT" in ended.error
    assert "LLVM ERROR" in ended.error
    assert "SIGSEGV" in run("os.kill(os.getpid(), 11)").error


def test_a_hang_is_ended_with_its_children(run, tmp_path):
    mark = tmp_path / "alive"
    grandchild = f"import time, pathlib; time.sleep(4); pathlib.Path({str(mark)!r}).touch()"
    ended = run(f"import subprocess; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(600)", 2.0)
    assert "no answer within 2 s" in ended.error
    time.sleep(4.5)
    assert sys.platform == "win32" or not mark.exists()


def test_errors_and_mistakes(run):
    ended = run("raise ValueError('of all things')")
    assert (ended.error, ended.mistake) == ("ValueError: of all things", False)
    ended = run("raise ConfigError('no such image.')")
    assert (ended.error, ended.mistake) == ("no such image.", True)
    assert "the disk is full" in run("raise OSError(28, 'No space left on device')").error


def test_an_end_without_an_answer(run):
    assert "exit code 3" in run("os._exit(3)").error


def test_pip_is_kept_from_installing_anything(run):
    assert run("return {'auto': os.environ['YOLO_AUTOINSTALL']}").answer == {"auto": "false"}
