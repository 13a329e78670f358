"""`yolo-rocm certify`: the whole command once, and the verification of its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from yolo_rocm.bench import certify
from yolo_rocm.cli.main import app
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.evidence import Certificate, as_text, file_name, read_evidence

from ..certificates import PARTS, certificate, write

pytestmark = pytest.mark.once


@pytest.mark.deep  # its parts are tested one by one in tests/bench
@pytest.mark.skipif(sys.platform == "win32", reason="home folders of Linux")
def test_the_whole_command_writes_a_file_that_verifies_and_names_nobody(tmp_path):
    home = tmp_path / "homes" / "zaphod"
    home.mkdir(parents=True)
    named = {"USER": "glance", "LOGNAME": "glance", "HOME": str(home), "YOLO_ROCM_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "yolo_rocm", "certify", "--quick", "--device", "cpu", "--out", "here/file.json"]
    package = os.pathsep.join(path for path in (os.getcwd(), os.environ.get("PYTHONPATH")) if path)
    given = {"cwd": tmp_path, "env": {**os.environ, **named, "PYTHONPATH": package}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every part passed" in done.stdout
    assert "no evidence for a card" in done.stdout
    text = (tmp_path / "here" / "file.json").read_text(encoding="utf-8")
    for word in ("glance", "zaphod", str(tmp_path), sys.prefix, "/site-packages"):
        assert word not in text
    data = read_evidence(tmp_path / "here" / "file.json").data
    assert (data.card.kind, data.quick, data.failed, set(data.parts)) == ("cpu", True, [], set(PARTS))
    assert data.parts["demo"].results["patched"] == "20 convolution layers: 20 gemm"
    assert "ours NCHW" in data.parts["bench_train"].results["ways"]
    assert not [path for path in tmp_path.iterdir() if path.name not in ("here", "homes")]  # no runs, no data


@pytest.mark.parametrize("failed", [(), ("kernels",)])
def test_the_command_writes_says_and_ends_with_1_where_a_part_failed(failed, tmp_path, monkeypatch):
    def run(device, announce, **_):
        announce("demo", 600.0)
        return certificate(failed=failed)

    monkeypatch.setattr(certify, "certify", run)
    monkeypatch.setattr("yolo_rocm.hardware.detect", lambda: Machine(build="cuda", gpus=(Gpu("nvidia"),)))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["certify"])
    assert done.exit_code == len(failed)
    assert "demo, at most 10 min" in done.stdout
    assert "save your work" in done.stdout
    assert ("kernels failed: it burns" in done.stdout) == bool(failed)
    (file,) = tmp_path.glob("*.json")
    assert file.name == file_name(read_evidence(file).data)


def told(done) -> str:
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "It counts for preset rx5600xt."),
        ({"quick": True}, "It counts for no preset: it ran on Radeon RX 5600 XT, with rx5600xt, a quick run."),
        ({"preset": "mine"}, "It counts for no preset: it ran on Radeon RX 5600 XT, with mine."),
    ],
)
def test_a_file_is_verified(changes, words, tmp_path):
    data = certificate(**changes)
    path = write(tmp_path, "card.json", data)
    done = CliRunner().invoke(app, ["certify", "--verify", str(path)])
    assert done.exit_code == 0
    assert f"card.json is as `yolo-rocm certify` wrote it. {words}" in told(done)
    assert file_name(Certificate.model_validate(data)) in told(done)
    done = CliRunner().invoke(app, ["certify", "--verify", str(path), "--json"])
    assert json.loads(done.stdout)["card"]["gfx"] == "gfx1010"


def test_an_edited_file_is_refused(tmp_path):
    data = certificate(failed=("kernels",))
    data["parts"]["kernels"]["failures"] = []
    (tmp_path / "card.json").write_text(as_text(data), encoding="utf-8")
    done = CliRunner().invoke(app, ["certify", "--verify", str(tmp_path / "card.json")])
    assert done.exit_code == 3  # not that of a file that says honestly what failed
    assert "error: card.json was edited" in done.stderr
