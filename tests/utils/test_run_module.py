"""Processes that crash, hang, raise or fill the log: none takes the caller with it, and each is told apart."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from yolo_rocm.utils import child_process
from yolo_rocm.utils.child_process import ending, run_module
from yolo_rocm.utils.error_text import first_line, typed_line

from ..tables import each_row

pytestmark = pytest.mark.once
CHILD = """
import os, sys, time
from yolo_rocm.errors import ConfigError
from yolo_rocm.utils.child_process import answer_parent
def main(settings):
    {body}
if __name__ == "__main__":
    answer_parent(main)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(body, limit_s=60.0):
        (tmp_path / "a_child.py").write_text(CHILD.format(body=body))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return run_module("a_child", {"x": 2}, limit_s)

    return run


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_names_the_signal_and_the_last_words(run):
    ended = run("sys.stderr.write('LLVM ERROR: Cannot select'); sys.stderr.flush(); os.abort()")
    assert "SIGABRT" in ended.error
    assert "LLVM ERROR" in ended.error


def test_a_hang_is_ended_with_its_children(run, tmp_path):
    mark = tmp_path / "alive"
    grandchild = f"import time, pathlib; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    ended = run(f"import subprocess; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(600)", 1.0)
    assert "no answer within 1 s" in ended.error
    time.sleep(2.5)
    assert sys.platform == "win32" or not mark.exists()


def test_answers_errors_and_mistakes(run):
    ended = run("return {'twice': 2 * settings['x'], 'pip': os.environ['YOLO_AUTOINSTALL']}")
    assert (ended.answer, ended.error) == ({"twice": 4, "pip": "false"}, "")
    assert "exit code 3" in run("os._exit(3)").error
    ended = run("raise ValueError('of all things')")
    assert (ended.error, ended.is_mistake) == ("ValueError: of all things", False)
    ended = run("raise ConfigError('no such image.')")
    assert (ended.error, ended.is_mistake) == ("no such image.", True)
    assert "the disk is full" in run("raise OSError(28, 'No space left on device')").error


def test_the_last_answer_counts_whatever_comes_after_it(run):
    ended = run("yield {'first': 1}; yield {'second': 2}; os.abort()")
    assert ended.answer == {"second": 2}
    assert "SIGABRT" in ended.error
    ended = run("yield {'first': 1}; raise ValueError('later')")
    assert (ended.answer, ended.error) == ({"first": 1}, "ValueError: later")


def test_one_that_cannot_be_killed_is_left_alone(run, monkeypatch):
    started = []
    popen = child_process.subprocess.Popen
    monkeypatch.setattr(child_process.os, "killpg", lambda *_: None)
    monkeypatch.setattr(child_process, "_END_S", 0.1)
    monkeypatch.setattr(child_process.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0])
    ended = run("time.sleep(60)", 0.2)
    assert ended.unkillable
    assert "the process cannot be killed" in ended.error
    started[0].kill()
    started[0].wait()


@pytest.mark.parametrize(
    ("platform", "code", "words"),
    [
        ("linux", -11, "ended by SIGSEGV"),
        ("linux", -64, "ended by signal 64" if not hasattr(signal, "SIGRTMAX") else "ended by SIGRTMAX"),
        ("linux", 3, "ended with exit code 3"),
        ("win32", 0xC0000005, "ended by SIGSEGV (0xc0000005)"),
        ("win32", -1073740791, "ended by SIGABRT (0xc0000409)"),
        ("win32", 1, "ended with exit code 1"),
    ],
)
def test_ends_in_words(platform, code, words, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert ending(code) == words


@each_row(
    ("error", "line", "typed"),
    [
        (ValueError("\n  one \ntwo"), "one", "ValueError: one"),
        (ValueError(), "ValueError", "ValueError"),
        (RuntimeError("\u26a0\ufe0f größer als erlaubt"), "größer als erlaubt", "RuntimeError: größer als erlaubt"),
        (RuntimeError("x" * 1000), "x" * 300, f"RuntimeError: {'x' * 300}"),
    ],
)
def test_an_error_in_one_line(error, line, typed):
    assert (first_line(error), typed_line(error)) == (line, typed)
