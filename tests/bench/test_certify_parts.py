"""The processes in which a certification trains and measures: however one ends, the reason comes back in words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from yolo_rocm.bench import certify_parts
from yolo_rocm.bench.certify_parts import PartError, in_child

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
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_mistake_of_the_real_process_is_told():
    with pytest.raises(PartError, match=r"exit code 1: .*KeyError: 'device'"):
        in_child("bench_conv", {}, os.environ, 120)
