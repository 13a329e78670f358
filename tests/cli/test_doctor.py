"""`yolo-rocm doctor`: words, exit codes, logs from files and from stdin."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from tests.diagnosis.stand_in import CHILD, RAISES, SCHEMA, SKIPS, fits
from yolo_rocm.cli.main import app
from yolo_rocm.engines.triton.available import in_words_unasked
from yolo_rocm.errors import ConfigError

from ..tables import each_row


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def read(tmp_path):
    """Return a function that lets the command read a log in this process."""

    def run(log: bytes, *words: str):
        (tmp_path / "train.log").write_bytes(log)
        return CliRunner().invoke(app, ["doctor", str(tmp_path / "train.log"), *words])

    return run


def test_a_log_is_read_from_a_file_and_from_stdin(read):
    log = b"epoch 1\nRuntimeError: miopenStatusUnknownError: stoul\n\xff\xfe rubbish\n"
    done = read(log)
    assert done.exit_code == 1
    assert done.stdout.startswith("miopen-stoul, line 2: RuntimeError: miopenStatusUnknownError: stoul")
    for word in ("cause:", "remedy:", "https://github.com/ROCm/rocm-libraries/issues/4070", "Also in this log:"):
        assert word in done.stdout
    command = [sys.executable, "-m", "yolo_rocm", "doctor", "-"]
    piped = subprocess.run(command, input=log, capture_output=True, check=False, timeout=120)
    assert (piped.returncode, piped.stdout.decode()) == (1, done.stdout)


def test_exit_codes_of_logs(read, tmp_path):
    assert read(b"all is well\n").exit_code == 0
    for missing in (tmp_path / "missing.log", tmp_path):
        done = CliRunner().invoke(app, ["doctor", str(missing)])
        assert (done.exit_code, "cannot read" in done.stderr) == (2, True)
    told = json.loads(read(b"HSA_STATUS_ERROR_INVALID_ISA", "--json").stdout)
    assert [match["id"] for match in told["matches"]] == ["hsa-invalid-isa"]
    assert (told["schema"], told["last_error"]) == (1, None)


@each_row("note", [b"", b'MIOpen(HIP): Warning [ParseAndLoadDb] File is unreadable: "gfx1200_20.HIP.fdb.txt"\n'])
def test_a_crash_that_nobody_has_described_is_quoted_and_is_a_problem(note, read):
    log = note + b'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: [no] such colour\n'
    done = read(log)
    assert done.exit_code == 1
    line = log.count(b"\n")
    assert f"Its last error, line {line}: ValueError: [no] such colour" in done.stdout
    assert done.stdout.startswith("No known failure in this log.")
    assert ("Worth knowing:\nmiopen-db-missing" in done.stdout) == bool(note)
    told = json.loads(read(log, "--json").stdout)
    assert told["last_error"] == {"line": line, "text": "ValueError: [no] such colour"}
    healthy = read(note + b"epoch 1\n")
    assert (healthy.exit_code, "last error" in healthy.stdout) == (0, False)


@pytest.fixture
def command(monkeypatch):
    """Return a function that runs the command in this process, with a stand-in for the probing process."""

    def run(*words: str, bad: tuple[str, ...] = ()):
        child = [sys.executable, "-c", CHILD.format(bad=bad, act=RAISES)]
        monkeypatch.setattr("yolo_rocm.diagnosis.doctor.child_command", lambda device: child)
        return CliRunner().invoke(app, ["doctor", "--device", "cpu", "--preset", "cpu", *words])

    return run


def test_a_report_that_cannot_be_written_or_is_not_meant_is_refused_before_anything_runs(
    command, tmp_path, monkeypatch
):
    monkeypatch.setattr("yolo_rocm.diagnosis.doctor.doctor", lambda *words, **more: pytest.fail("examined"))
    (tmp_path / "file").touch()
    for bundle, text in ((tmp_path / "file" / "report.md", "must be a folder"), (tmp_path, "is a folder")):
        done = command("--bundle", str(bundle))
        assert isinstance(done.exception, ConfigError)
        assert text in str(done.exception)
    done = command(str(tmp_path / "file"), "--bundle", str(tmp_path / "report.md"))
    assert done.exit_code == 2
    assert "give one of them" in " ".join(done.output.replace("│", " ").split())


def test_the_verdict_stands_first(command, tmp_path):
    done = command("--bundle", str(tmp_path / "new" / "report.md"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Training on the CPU will work with preset cpu")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["conv", "gemm", "ok", "ok", "ok"] in rows
    assert "vendor library, convolution: fp32 healthy, fp16 healthy, bf16 healthy" in done.stdout
    report = (tmp_path / "new" / "report.md").read_text()
    assert report.startswith("# yolo-rocm")
    line = next(line for line in done.stdout.splitlines() if line.startswith("engine triton: "))
    told = in_words_unasked(torch.__version__.partition("+")[0])
    assert line == f"engine triton: {told}"
    assert f"triton: {told}\n" in report
    assert "engine hip: the device was not queried" in done.stdout
    assert "hip_engine: the device was not queried\n" in report


def test_why_triton_is_no_candidate_is_one_line_and_no_problem(monkeypatch):
    child = CHILD.format(bad=("conv/triton",), act=SKIPS).replace('dict(name="AMD")', 'dict(triton="no such card")')
    monkeypatch.setattr("yolo_rocm.diagnosis.doctor.child_command", lambda device: [sys.executable, "-c", child])
    words = ["doctor", "--device", "cpu", "--preset", "cpu"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert [line for line in done.stdout.splitlines() if "triton" in line] == ["engine triton: no such card"]
    data = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert data["triton"] == "no such card"
    skipped = [row for row in data["probes"] if row["status"] == "skipped"]
    assert {row["message"] for row in skipped} == {"no such card"}
    assert {row["name"].split("/")[1] for row in skipped} == {"triton"}
    assert not any("triton" in row["id"] for row in data["findings"])


def test_problems_are_said_and_counted(command):
    done = command(bad=("conv/vendor",))
    assert done.exit_code == 1
    first, second, *_ = done.stdout.splitlines()
    assert first == "Training on the CPU will work with preset cpu and rocm.conv.engine=auto rocm.conv.vendor=off."
    assert second == "Next: yolo-rocm train preset=cpu rocm.conv.engine=auto rocm.conv.vendor=off ..."
    assert ["conv", "vendor", "error", "(7", "of", "7)"] in [line.split()[:6] for line in done.stdout.splitlines()]
    data = json.loads(command("--json", bad=("conv/vendor",)).stdout)
    assert fits(data, SCHEMA)
    assert data["verdict"]["code"] == 1
    assert data["vendor"]["conv"] == {"fp32": False, "fp16": False, "bf16": False}
