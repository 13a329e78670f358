"""The examination as a whole: findings, stable data, a report without secrets, and its diagnosis of deaths."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

import yolo_rocm
from tests.fake_trees import RX5600XT, RX6600, RX7900XTX, add_package, make_torch, make_tree, old_torch, write
from yolo_rocm.diagnosis import bundle
from yolo_rocm.diagnosis.doctor import probe_findings
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.diagnosis.probe_runner import run_probes
from yolo_rocm.diagnosis.probes import all_probes
from yolo_rocm.diagnosis.verdict import Setup
from yolo_rocm.hardware import detect

from ..short_products import CHILD as SHORT
from ..small_model import small_model
from .stand_in import CHILD, FINDING_KEYS, GPU_KEYS, PROBE_KEYS, RAISES, SCHEMA, fits

AUTO = Setup("auto", vendor_library=False, amp=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_failed_probes_become_findings_with_what_is_known():
    outcomes = [
        ProbeOutcome("conv/vendor/fp16/nchw/1x1", "error", "RuntimeError: miopenStatusUnknownError"),
        ProbeOutcome("conv/vendor/fp16/nchw/3x3", "hang", "no answer within 20 s"),
        ProbeOutcome("conv/vendor/fp16/nhwc/3x3", "skipped", "2 probes"),
        ProbeOutcome("conv/auto/fp32/nchw/3x3", "wrong", "relative error 7e-1"),
        ProbeOutcome("gemm/fp32", "abort", "SIGABRT: rocBLAS error: Cannot read /x/TensileLibrary.dat: Illegal seek"),
        ProbeOutcome("pinned", "error", "no memory"),
    ]
    said = "miopen_type_traits.hpp:151:10: fatal error: 'type_traits' file not found"
    found = {finding.id: finding for finding in probe_findings(outcomes, AUTO, said, "gfx1200")}
    names = ("probe-conv-vendor-fp16", "probe-conv-auto-fp32", "probe-gemm-fp32", "probe-pinned")
    grave = dict(zip(names, ("info", "error", "error", "warning"), strict=True))
    assert {name: finding.severity for name, finding in found.items()} == grave
    assert "C++ headers" in found["probe-conv-vendor-fp16"].finding  # the reason MIOpen printed, not its bare status
    assert "device-gfx1200" in found["probe-gemm-fp32"].remedy
    assert found["probe-pinned"].finding == "pinned memory failed: error, no memory"


def examine(tmp_path, card, bad=(), act=RAISES, torch=make_torch, **options):
    root = make_tree(tmp_path / "root", card)
    write(root / "dev/dri/renderD128", "")
    site = torch(tmp_path / "site")
    tag = "+rocm5.2" if torch is old_torch else "+rocm7.0"
    write(tmp_path / "site/torchvision/version.py", f"__version__ = '0.25.0{tag}'\n")
    machine = detect(root, os_name="linux", torch_folder=site, environ={})
    vars(machine).update(ultralytics="8.4.190")
    command = [sys.executable, "-c", CHILD.format(bad=tuple(bad), act=act)]
    return yolo_rocm.doctor(machine=machine, command=command, **options)


def test_a_healthy_card(tmp_path):
    found = examine(tmp_path, RX7900XTX)
    assert found.verdict.code == 0
    assert found.verdict.text == "Training will work with preset rx7900xtx on AMD Radeon RX 7900 XTX (gfx1100, 24 GB)."
    assert {o.status for o in found.outcomes} == {"ok"}
    assert found.health.conv == {"fp32": True, "fp16": True, "bf16": True}


def test_a_sick_vendor_library_is_no_problem_for_a_preset_without_it(tmp_path):
    found = examine(tmp_path, RX7900XTX, bad=("conv/vendor", "norm/vendor"))
    assert (found.verdict.code, found.verdict.works) == (0, True)
    assert not any(found.health.conv.values())
    assert {f.severity for f in found.findings} <= {"info"}


def test_a_library_that_leaves_long_products_unwritten_is_found(tmp_path):
    """By a probe of its own: convolutions that are probed are smaller. Engines cut their products: a training works."""
    probes = [probe for probe in all_probes() if probe.kind in ("gemm", "long_gemm") and probe.dtype == "fp32"]
    outcomes = run_probes(probes, [sys.executable, "-c", SHORT, "--device", "cpu"]).outcomes
    assert [o.name for o in outcomes if o.status != "ok"] == ["long_gemm/fp32"]
    (finding,) = probe_findings(outcomes, AUTO, gfx="gfx1201")
    assert (finding.id, finding.severity) == ("probe-long_gemm-fp32", "warning")
    assert finding.finding.startswith("matrix products of 528,384 rows in fp32 failed: long_gemm/fp32: nan")
    assert "cut at 2^18 rows" in finding.remedy
    assert AUTO.works(outcomes)


def test_packages_that_do_not_fit_are_told_before_the_device_is_asked(tmp_path):
    """The device's answers would all be right, and training would die at the first image."""
    add_package(tmp_path / "site", "numpy", "2.2.6")
    found = examine(tmp_path, RX5600XT, torch=old_torch)
    assert (found.verdict.code, found.verdict.works) == (2, False)
    assert found.verdict.text.startswith("Nothing can be trained here: torch 1.13.1 was built for NumPy 1")
    assert found.verdict.next == 'pip install "numpy<2"'
    assert found.outcomes == ()


def test_the_shape_of_the_data_is_stable(tmp_path):
    nan = 'say(probe=name, error=float("nan")); continue'
    found = examine(tmp_path, RX6600, bad=("conv/vendor/fp16",), act=nan)
    data = json.loads(json.dumps(found.as_dict(), default=str, allow_nan=False))
    assert fits(data, SCHEMA)
    assert data["findings"]
    assert all(set(row) == FINDING_KEYS for row in data["findings"])
    assert all(set(row) == PROBE_KEYS for row in data["probes"])
    assert all(set(row) == GPU_KEYS for row in data["machine"]["gpus"])
    assert {row["status"] for row in data["probes"]} == {"ok", "nan"}


def test_without_a_gpu_it_is_quick_and_loads_no_torch():
    code = (
        "import sys, time, yolo_rocm\nfrom pathlib import Path\nfrom yolo_rocm.hardware import Machine\n"
        "machine = Machine(torch='2.10.0', build='cpu', torch_folder=Path('/nowhere/torch'))\n"
        "found = yolo_rocm.doctor(machine=machine)\n"
        "print(found.verdict.code, 'torch' in sys.modules, 'ultralytics' in sys.modules, time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *found, seconds = done.stdout.split()
    assert found == ["0", "False", "False"]
    assert float(seconds) < 5  # of its own: others may keep the machine busy


def test_the_report_tells_everything_but_who_and_no_secret(tmp_path, monkeypatch):
    """Nor what YAML would have quoted, or what is cut through at the beginning of a long output."""
    monkeypatch.setenv("HOME", "/home/heinrich")
    odd = 'it\'s "so": secret\\x'
    environ = {
        **{"USER": "heinrich", "HOSTNAME": "workhorse.example.org", "HF_TOKEN": odd, "YOLO_AUTH_TOKEN": "yolosecret"},
        **{"MIOPEN_USER_DB_PATH": "/home/heinrich/miopen", "MIOPEN_CACHE": "redis://:hunter2@cache:6379/0"},
        **{"TORCH_LOGS": f"said {odd}", "HIP_VISIBLE_DEVICES": "0", "SHELL": "/bin/fish"},
    }
    output = "x" * 9000 + " AKIAABCDEFGHIJKLMNOP " + "y " * 3950 + "heinrich at workhorse, heinrichs yolosecret"
    found = examine(tmp_path, RX5600XT, probes=False)
    text = bundle.report(dataclasses.replace(found, output=output), environ)
    secrets = ("heinrich ", "workhorse", "yolosecret", "YOLO_AUTH_TOKEN", "hunter2", "it's", "it''s", "so\\")
    for secret in (*secrets, "KLMNOP", "fish"):
        assert secret not in text, secret
    known = ("RX 5600 XT", "MIOPEN_USER_DB_PATH: ~/miopen", "arch-not-in-torch", "HIP_VISIBLE_DEVICES: '0'")
    for word in (*known, "heinrichs", "redis://<secret>@cache:6379/0", "LOGS: said <secret>\n"):
        assert word in text, word


class Died(RuntimeError):
    """A death of its own class, to see that it arrives as it was."""


def test_a_training_that_dies_offers_its_diagnosis(made_data, tmp_path, events):
    from ultralytics import YOLO

    error = Died("HIP error: invalid device function")

    def die(trainer) -> None:
        raise error

    yolo = YOLO(small_model())
    yolo_rocm.register(yolo, preset="cpu")
    yolo.add_callback("on_train_start", die)
    options = {"epochs": 1, "imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "workers": 0}
    with pytest.raises(Died) as caught:
        yolo.train(data=str(made_data()), project=str(tmp_path), name="run", **options)
    assert caught.value is error
    assert error.args == ("HIP error: invalid device function",)
    assert len([line for line in events.lines if "hip-invalid-device-function" in line]) == 1
    assert any("what to do: " in line and "whl-multi-arch" in line for line in events.lines)
