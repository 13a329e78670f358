"""Probing: children that hang, crash, lie or babble are told apart, ended in time, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time

import pytest

from yolo_rocm.diagnosis import probe_runner
from yolo_rocm.diagnosis.outcome import Limits
from yolo_rocm.diagnosis.probe_runner import run_probes
from yolo_rocm.diagnosis.probes import DeviceProbe, all_probes

PROBES = [
    DeviceProbe("gemm", dtype="fp32"),
    DeviceProbe("conv", "vendor", "fp32", "nchw", "1x1"),
    DeviceProbe("pinned"),
]
NAMES = [probe.name for probe in PROBES]
QUICK = Limits(start=30.0, probe=1.2, total=90.0, end=10.0)
HEALTHY = """
import json, os, signal, subprocess, sys, time
answers = open(sys.argv[-1], "a")
def say(**line):
    print(json.dumps(line), file=answers, flush=True)
for name in sys.argv[-2].split(","):
    say(probe=name, begin=True)
    if name.startswith("conv"):
        {misbehaves}
    say(probe=name, error=0.0)
"""

linux_only = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def child(tmp_path, misbehaves: str = "pass") -> list[str]:
    script = tmp_path / "child.py"
    body = textwrap.indent(misbehaves, "        ").strip()
    script.write_text(HEALTHY.format(misbehaves=body))
    return [sys.executable, str(script)]


def ask(tmp_path, misbehaves: str = "pass", limits: Limits = QUICK):
    started = time.monotonic()
    answers = run_probes(PROBES, child(tmp_path, misbehaves), limits)
    assert [outcome.name for outcome in answers.outcomes] == NAMES
    assert time.monotonic() - started < 60
    return answers


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    """No child, dead or alive, outlives a test."""
    started = []
    start = subprocess.Popen

    def recording(command, **options):
        process = start(command, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr(probe_runner.subprocess, "Popen", recording)
    yield
    monkeypatch.undo()
    if sys.platform != "win32":
        for pid in started:
            with pytest.raises(ChildProcessError):  # collected already: neither running nor a zombie
                os.waitpid(pid, os.WNOHANG)


CULPRITS = {
    "hang": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)", "hang", "no answer"),
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", "segfault", "SIGSEGV"),
    "abort": ("os.write(2, b'rocBLAS error: no kernel'); os.abort()", "abort", "SIGABRT: rocBLAS error: no kernel"),
    "nan": ("say(probe=name, error=float('nan')); continue", "nan", "NaN"),
    "wrong": ("say(probe=name, error=2e-4); continue", "wrong", "relative error 2.0e-04, at most 1e-04"),
    "half a line": ("answers.write('{\"probe\": '); answers.flush(); sys.exit(7)", "no answer", "exit code 7"),
    "other signal": ("os.kill(os.getpid(), signal.SIGFPE)", "signal", "SIGFPE"),
    "error": ("say(probe=name, message='RuntimeError: miopenError'); continue", "error", "miopenError"),
    "noise": ("sys.stderr.write('w' * 300000); print('{}', flush=True)", "ok", ""),
}


@pytest.mark.once
@linux_only
@pytest.mark.parametrize(("misbehaves", "status", "message"), CULPRITS.values(), ids=CULPRITS.keys())
def test_each_culprit_is_named_and_the_others_go_on(tmp_path, misbehaves, status, message):
    before, culprit, after = ask(tmp_path, misbehaves).outcomes
    assert (before.status, after.status) == ("ok", "ok")
    assert culprit.status == status
    assert message in culprit.message


@pytest.mark.once
@linux_only
def test_grandchildren_are_ended_too(tmp_path):
    mark = tmp_path / "pid"
    misbehaves = f"p = subprocess.Popen(['sleep', '600']); open({str(mark)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    assert ask(tmp_path, misbehaves).outcomes[1].status == "hang"
    deadline = time.monotonic() + 5
    while _runs(int(mark.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(int(mark.read_text()))


def _runs(pid: int) -> bool:
    """Tell whether a process runs; one that waits for a parent elsewhere to collect it does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.once
@linux_only
def test_a_device_that_does_not_answer_is_asked_nothing_more():
    probes = [DeviceProbe("device"), *PROBES]
    shown = []
    command = [sys.executable, "-c", "import os; os.abort()"]
    answers = run_probes(probes, command, QUICK, progress=lambda done, total: shown.append((done, total)))
    assert [o.status for o in answers.outcomes] == ["abort", "skipped", "skipped", "skipped"]
    assert (shown[0], shown[-1]) == ((0, 4), (4, 4))  # what is skipped is done with too


@pytest.mark.once
@linux_only
def test_after_two_deaths_a_dtype_is_left_alone_and_after_three_a_way(tmp_path):
    cases = [("fp32", "1x1"), ("fp32", "3x3"), ("fp32", "3x3-deep"), ("fp16", "1x1"), ("fp16", "3x3"), ("bf16", "1x1")]
    probes = [DeviceProbe("conv", "vendor", dtype, "nchw", shape) for dtype, shape in cases]
    probes.append(DeviceProbe("conv", "gemm", "bf16", "nchw", "1x1"))
    outcomes = run_probes(probes, child(tmp_path, "if 'vendor' in name: os.abort()"), QUICK).outcomes
    assert [o.status for o in outcomes] == ["abort", "abort", "skipped", "abort", "skipped", "skipped", "ok"]


@pytest.mark.once
@linux_only
def test_a_runtime_that_keeps_an_error_is_started_anew(tmp_path):
    misbehaves = "say(probe=name, message='RuntimeError: HIP error'); say(restart=True); time.sleep(5)"
    assert [o.status for o in ask(tmp_path, misbehaves).outcomes] == ["ok", "error", "ok"]


@pytest.mark.once
@linux_only
def test_the_time_for_everything_is_kept(tmp_path):
    started = time.monotonic()
    limits = Limits(start=60.0, probe=60.0, total=3.0, end=10.0)
    answers = run_probes(PROBES, child(tmp_path, "time.sleep(600)"), limits)
    assert time.monotonic() - started < 30
    assert [o.status for o in answers.outcomes] == ["ok", "skipped", "skipped"]
    assert "3 s were over" in answers.outcomes[1].message


@pytest.mark.once
@linux_only
def test_a_process_that_cannot_be_killed_is_left_behind_and_said(tmp_path, monkeypatch):
    """What a driver can do to a process: it does not die. Here the signal simply is not sent until the end."""
    real, pids = os.killpg, []
    monkeypatch.setattr("yolo_rocm.utils.child_process.os.killpg", lambda pid, number: pids.append(pid))
    answers = run_probes(PROBES, child(tmp_path, "time.sleep(600)"), Limits(start=30.0, probe=1.2, total=90.0, end=0.3))
    for pid in pids:
        real(pid, 9)
        with contextlib.suppress(ChildProcessError):  # Python collects what nobody waits for any more
            os.waitpid(pid, 0)
    assert [o.status for o in answers.outcomes] == ["ok", "hang", "skipped"]
    assert "cannot be killed" in answers.outcomes[1].message


@pytest.mark.once
def test_there_is_more_time_where_triton_compiles(tmp_path):
    ways = [
        DeviceProbe("gemm", dtype="fp32"),
        *(DeviceProbe("conv", way, "fp32", "nchw", "1x1") for way in ("triton", "gemm")),
    ]
    limits = Limits(start=30.0, probe=1.2, compile=30.0, total=90.0, end=10.0)
    answers = run_probes(ways, child(tmp_path, "time.sleep(2.5)"), limits)
    assert [(o.name.split("/")[1], o.status) for o in answers.outcomes[1:]] == [("triton", "ok"), ("gemm", "hang")]


@pytest.mark.once
def test_the_first_probe_has_the_time_in_which_torch_is_imported(tmp_path):
    (only,) = run_probes(PROBES[1:2], child(tmp_path, "time.sleep(2)"), QUICK).outcomes
    assert only.status == "ok"


def test_the_names_of_probes_fit_into_a_command():
    names = [probe.name for probe in all_probes()]
    assert len(names) == len(set(names))
    assert len(",".join(names)) < 8000  # a command line of Windows


LYING = """
import sys
import torch
real, calls = torch.nn.functional.batch_norm, []
def lying(*args, **options):
    calls.append(1)
    return real(*args, **options) * (1.0, 1.01, float("nan"))[len(calls) - 1]
torch.nn.functional.batch_norm = lying
from yolo_rocm.diagnosis.probe_child import main
main(["--device", "cpu", *sys.argv[-2:]])
"""


def test_wrong_values_are_noticed():
    wanted = [p for p in all_probes() if p.group in ("norm/off/fp32", "norm/vendor/fp32")][:3]
    outcomes = run_probes(wanted, [sys.executable, "-c", LYING]).outcomes
    assert [outcome.status for outcome in outcomes] == ["ok", "wrong", "nan"]
