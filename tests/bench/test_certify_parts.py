"""The processes in which a certification trains and measures: however one ends, the reason comes back in words."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from yolo_rocm.bench import certify_parts, train
from yolo_rocm.bench.certify_environment import ended_by_exception, own_variables
from yolo_rocm.bench.certify_parts import HeldError, PartError, in_child
from yolo_rocm.utils import child_process

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="a shell script as Python")]


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the place of Python; it gets -m, module, part, settings, file."""

    def put(body: str) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        monkeypatch.setattr(certify_parts.sys, "executable", str(script))

    return put


def test_a_result_comes_back(python):
    python('echo noise; printf \'{"part": "%s", "offline": "%s", "ours": "%s"}\' $3 $YOLO_OFFLINE "$YOLO_ROCM" > "$5"')
    found = in_child("training", {}, {**os.environ, "YOLO_ROCM": "0"}, 60)
    assert found == {"part": "training", "offline": "true", "ours": ""}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'RuntimeError: miopenStatusUnknownError' >&2; exit 1", "exit code 1: RuntimeError: miopenStatus"),
        ("echo boom; kill -SEGV $$", "ended by SIGSEGV: boom"),
        ("exit 0", "ended with exit code 0"),
    ],
    ids=["raised", "crashed", "left without a word"],
)
def test_how_a_process_ended_is_told(body, said, python):
    python(body)
    with pytest.raises(PartError, match=said):
        in_child("training", {}, os.environ, 60)


def test_a_process_that_hangs_is_ended_with_its_children(python, tmp_path):
    python(f"sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    with pytest.raises(PartError, match="no result within 1 s: the process was ended"):
        in_child("training", {}, os.environ, 1)
    assert has_gone((tmp_path / "pid").read_text())


def has_gone(pid: str) -> bool:
    """Wait for a process that was killed: whoever adopts it may be slow to notice."""
    for _ in range(500):
        try:
            if Path("/proc", pid.strip(), "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_process_that_cannot_be_killed_is_left_alone(python, monkeypatch):
    """The driver holds it, and would hold whoever waits for it."""
    python("exec sleep 20")
    monkeypatch.setattr(child_process.os, "killpg", lambda *_: None)
    monkeypatch.setattr(certify_parts, "_END_S", 0.1)
    started = []
    popen = certify_parts.subprocess.Popen
    monkeypatch.setattr(certify_parts.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0])
    with pytest.raises(HeldError, match="no result within 0 s, and the process cannot be killed"):
        in_child("training", {}, os.environ, 0.2)
    assert started[0].poll() is None
    started[0].kill()
    started[0].wait()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_certification_that_is_ended_leaves_nothing(name, python, tmp_path, monkeypatch, hangup_heard):
    temporary, number = tmp_path / "temporary", getattr(signal, name)
    temporary.mkdir()
    monkeypatch.setattr(certify_parts.tempfile, "tempdir", str(temporary))
    python(f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600")

    def communicate(process, timeout):
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(certify_parts.subprocess.Popen, "communicate", communicate)
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended, ended_by_exception(), own_variables():
        in_child("training", {}, os.environ, 60)
    assert ended.value.code == 128 + number
    assert has_gone((tmp_path / "pid").read_text())
    assert not list(temporary.iterdir())
    assert signal.getsignal(number) == before


def test_a_signal_that_is_ignored_stays_so():
    """`nohup` has the command survive the end of its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_exception():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


RIGHT, OTHER = [30.0, 29.0, 28.0, 27.0], [30.0, 31.0, 33.0, 35.0]


@pytest.mark.parametrize(
    ("wrong", "ours", "torch_own"),
    [
        ((), [], []),
        (("stock NCHW",), [], ["stock NCHW is wrong"]),
        (("stock NCHW", "stock channels_last"), [], ["stock NCHW is wrong", "stock channels_last is wrong"]),
        (("ours NCHW",), ["ours NCHW is wrong"], []),
    ],
    ids=["all right", "vendor library", "vendor library, both layouts", "ours"],
)
def test_losses_of_the_vendor_library_fail_nothing_of_ours(wrong, ours, torch_own, monkeypatch):
    """The reference is torch without it: where MIOpen computes nonsense, that is no fault of ours."""

    class Bench:
        held_mb = 0.0

        def __init__(self, *args, **settings):
            pass

        def run(self, ways, show):
            for way in ways:
                way.losses, way.turns_ms = OTHER if way.name in wrong else RIGHT, [[1.0, 1.0, 1.0]]

    monkeypatch.setattr(train, "TrainBench", Bench)
    given = {"device": "cpu", "vendor": True, "batch": 2, "imgsz": 64, "steps": 1, "tune_s": 0.0}
    found = certify_parts.bench_train(given)
    assert found["reference"] == "vendor off NCHW"
    assert [words.partition(":")[0] for words in found["failures"]] == ours
    assert [words.partition(":")[0] for words in found["torch_own_failures"]] == torch_own


def test_a_mistake_of_the_real_process_is_told():
    with pytest.raises(PartError, match=r"exit code 1: .*KeyError: 'device'"):
        in_child("bench_conv", {}, os.environ, 120)
