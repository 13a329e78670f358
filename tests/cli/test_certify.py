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
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.evidence import Certificate, as_text, file_name, read_evidence
from yolo_rocm.utils import atomic

from ..certificates import PARTS, certificate, write

pytestmark = pytest.mark.once


@pytest.mark.deep  # its parts are tested one by one in tests/bench
@pytest.mark.skipif(sys.platform == "win32", reason="home folders of Linux")
def test_the_whole_command_writes_a_file_that_verifies_and_names_nobody(tmp_path):
    home = tmp_path / "homes" / "zaphod"
    home.mkdir(parents=True)
    # Words that are in every file: what is not taken out of it is found in it.
    named = {"USER": "glance", "LOGNAME": "glance", "HOSTNAME": "yolov8n", "HOME": str(home)}
    command = [sys.executable, "-m", "yolo_rocm", "certify", "--quick", "--device", "cpu", "--out", "here/file.json"]
    package = os.pathsep.join(path for path in (os.getcwd(), os.environ.get("PYTHONPATH")) if path)
    environment = {**os.environ, **named, "PYTHONPATH": package, "YOLO_ROCM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=500, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every part passed" in done.stdout
    assert "written to here/file.json" in done.stdout
    assert "no evidence for a card" in done.stdout
    text = (tmp_path / "here" / "file.json").read_text(encoding="utf-8")
    for word in ("glance", "yolov8n", "zaphod", str(tmp_path), sys.prefix, "/site-packages"):
        assert word not in text
    assert "a <user>, few steps" in text
    assert '"model": "<host>.yaml"' in text
    data = read_evidence(tmp_path / "here" / "file.json").data
    assert (data.card.kind, data.quick, data.failed, tuple(data.parts)) == ("cpu", True, [], PARTS)
    assert data.parts["kernels"].results["tried"]["gemm/fp32/nhwc/conv/pointwise"]["error"] > 0
    assert data.parts["demo"].results["patched"] == "20 convolution layers: 20 gemm"
    assert "ours NCHW" in data.parts["bench_train"].results["ways"]
    assert not [path for path in tmp_path.iterdir() if path.name not in ("here", "homes")]  # no runs, no data


@pytest.fixture
def ran(monkeypatch):
    """Put a certificate that is there at once in the place of the long run."""
    runs = []

    def run(device, announce, **_):
        announce("demo", 600.0)
        runs.append(device)
        return certificate()

    monkeypatch.setattr(certify, "certify", run)
    return runs


def test_a_file_that_cannot_be_written_is_noticed_before_the_run(ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for out, said in ((tmp_path, "is a folder"), (tmp_path / "file" / "x.json", "nothing can be written in")):
        done = CliRunner().invoke(app, ["certify", "--device", "cpu", "--out", str(out)])
        assert isinstance(done.exception, ConfigError)
        assert said in str(done.exception)
    monkeypatch.setattr(atomic, "problem_with", lambda folder: PermissionError(13, "Permission denied"))
    done = CliRunner().invoke(app, ["certify", "--device", "cpu"])
    assert "Permission denied. Name a file elsewhere" in str(done.exception)
    assert not ran


def test_a_place_that_has_gone_meanwhile_does_not_cost_the_run(ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file = atomic.write_file

    def write(path, content):
        if path.parent.name == "stick":
            raise OSError(5, "Input/output error")
        return write_file(path, content)

    monkeypatch.setattr(atomic, "write_file", write)
    done = CliRunner().invoke(app, ["certify", "--device", "cpu", "--out", "stick/x.json"])
    assert done.exit_code == 0
    (file,) = tmp_path.glob("*.json")
    assert f"written to {file.name}" in done.stdout
    assert "stick/x.json cannot be written: Input/output error" in done.stdout.replace("\\", "/")
    assert not read_evidence(file).data.failed


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_people_are_told_what_happens_and_how_long_it_takes(device, ran, tmp_path, monkeypatch):
    monkeypatch.setattr("yolo_rocm.hardware.detect", lambda: Machine(build="cuda", gpus=(Gpu("nvidia"),)))
    done = CliRunner().invoke(app, ["certify", "--device", device, "--out", str(tmp_path / "x.json")])
    assert done.exit_code == 0
    assert "3 of 4: demo: a short training, at most 10 min" in done.stdout
    assert ("save your work" in done.stdout) == (device == "cuda")


def test_a_file_is_verified(tmp_path):
    path = write(tmp_path, "card.json", certificate())
    done = CliRunner().invoke(app, ["certify", "--verify", str(path)])
    assert done.exit_code == 0
    assert "card.json is as `yolo-rocm certify` wrote it. It counts for preset rx5600xt." in told(done)
    assert f"The name by its content is {file_name(Certificate.model_validate(certificate()))}" in told(done)
    assert "Radeon RX 5600 XT gfx1010: every part passed" in done.stdout
    done = CliRunner().invoke(app, ["certify", "--verify", str(path), "--json"])
    assert json.loads(done.stdout)["card"]["gfx"] == "gfx1010"


def told(done) -> str:
    return " ".join(done.stdout.split())


WORTH = {
    "quick": (certificate(quick=True), "It is of a quick run and no evidence for a card."),
    "a CPU": (
        certificate("cpu", "CPU x", None, None, preset="cpu"),
        "it is no evidence for an AMD card",
    ),
    "another preset": (
        certificate(preset="mine"),
        "it ran with mine, which is no preset for Radeon RX 5600 XT",
    ),
    "an unknown name": (
        certificate(name="Radeon X"),
        "it ran with rx5600xt, which is no preset for Radeon X.",
    ),
    "a name that says nothing": (certificate(name="AMD Radeon Graphics"), "It counts for preset rx5600xt."),
}


@pytest.mark.parametrize(("data", "words"), WORTH.values(), ids=WORTH)
def test_what_a_file_is_evidence_for_is_said(data, words, tmp_path):
    path = write(tmp_path, file_name(Certificate.model_validate(data)), data)
    done = CliRunner().invoke(app, ["certify", "--verify", str(path)])
    assert done.exit_code == 0
    assert words in told(done)
    assert "name by its content" not in told(done)


def test_a_failure_is_told_in_words_and_by_the_exit_code(tmp_path):
    path = write(tmp_path, "card.json", certificate(failed=("kernels",)))
    done = CliRunner().invoke(app, ["certify", "--verify", str(path)])
    assert done.exit_code == 1
    assert "kernels failed: it burns" in done.stdout


def test_an_edited_file_is_refused(tmp_path):
    data = certificate(failed=("kernels",))
    data["parts"]["kernels"]["failures"] = []
    (tmp_path / "card.json").write_text(as_text(data), encoding="utf-8")
    done = CliRunner().invoke(app, ["certify", "--verify", str(tmp_path / "card.json")])
    assert done.exit_code == 3  # not that of a file that says honestly what failed
    assert "error: card.json was edited" in done.stderr
