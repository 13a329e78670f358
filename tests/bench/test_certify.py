"""A certification: failures are recorded and the other parts still run; the file holds nothing about its writer."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from pathlib import Path

import pytest

from yolo_rocm.bench import certify
from yolo_rocm.bench.certify import Certification
from yolo_rocm.bench.certify_facts import cleaned
from yolo_rocm.bench.certify_parts import PartError
from yolo_rocm.diagnosis import redaction
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.diagnosis.probe_runner import Answers
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.evidence import Evidence, digest_of

from .test_certify_kernels import SICK

pytestmark = pytest.mark.once
RIGHT = {"error": 1e-7, "allowed": 2e-7, "pass": "forward", "problem": "3x3", "results": 6}
RESULTS = {
    "training": {"ours": [4.0, 3.0, 1.0], "torch_cpu": [4.0, 3.0, 1.0], "computed_by": "64 gemm"},
    "bench_conv": {"totals_ms": {"vendor": {"sum": 2.0}, "auto": {"sum": 1.0}}},
    "bench_train": {"ways": {}, "summary": "ours is faster", "failures": []},
}
AMD = Machine(
    system="linux", overlays=("linux",), gpus=(Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT"),), torch="2.10.0",
    build="hip", hip="7.0.1",
)  # fmt: skip
NVIDIA = Machine(system="linux", overlays=("linux",), gpus=(Gpu("nvidia", name="H200"),), torch="2.11.0", build="cuda")


@pytest.fixture
def parts(monkeypatch):
    """Stand-ins for all that is slow, to be changed by a test: what children return, what the probes say."""
    said = {"children": dict(RESULTS), "calls": [], "died": False}

    class Found:
        verdict = type("Verdict", (), {"works": True, "text": "Training will work.", "next": ""})
        findings, triton = (), "none"

        @property
        def outcomes(self):
            dead = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "segfault", "SIGSEGV")
            return (ProbeOutcome("device", "ok"), *((dead,) if said["died"] else ()))

    def child(part, settings, environ, limit_s):
        said["calls"].append((part, settings))
        found = said["children"][part]
        if isinstance(found, Exception):
            raise found
        return json.loads(json.dumps(found))

    def probes(wanted, *_):
        return Answers(tuple(ProbeOutcome(p.name, "ok", "", 0.5, 1.0, RIGHT) for p in wanted))

    monkeypatch.setattr(certify, "doctor", lambda **_: Found())
    monkeypatch.setattr(certify, "run_probes", probes)
    monkeypatch.setattr(certify, "in_child", child)
    return said


def failures(data) -> dict[str, list[str]]:
    return {name: part["failures"] for name, part in data["parts"].items() if part["status"] == "failed"}


def test_all_is_well(parts):
    data = Certification("cpu").run()
    assert (failures(data), data["verdict"]) == ({}, {"passed": True, "text": "every part passed"})
    assert data["digest"] == digest_of(data)
    assert (data["card"]["kind"], data["preset"]["engine"], data["quick"]) == ("cpu", "gemm", False)
    assert list(data["parts"]) == ["doctor", "kernels", "training", "bench_conv", "bench_train"]
    assert [part for part, _ in parts["calls"]] == ["training", "bench_conv", "bench_train"]


def test_a_part_that_fails_is_recorded_and_the_others_run(parts, monkeypatch):
    def gone(**_):
        raise OSError("no torch")

    monkeypatch.setattr(certify, "doctor", gone)
    parts["children"]["training"] = PartError("the process ended by SIGSEGV: hsa fault")
    parts["children"]["bench_train"] = {**RESULTS["bench_train"], "failures": ["ours NCHW is wrong"]}
    data = Certification("cpu").run()
    assert failures(data) == {
        "doctor": ["OSError: no torch"],
        "training": ["the process ended by SIGSEGV: hsa fault"],
        "bench_train": ["ours NCHW is wrong"],
    }
    assert data["parts"]["bench_conv"]["status"] == data["parts"]["kernels"]["status"] == "passed"
    assert not data["verdict"]["passed"]
    assert data["verdict"]["text"].startswith("3 of 5 parts failed. doctor: OSError: no torch; training: the process")


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([4.0, 3.0, 1.0001], None),
        ([4.0, 3.0, 1.02], "a loss differs by 2.0e-02"),
        ([4.0, float("nan"), 1.0], "a loss differs by nan"),
        ([4.0, 3.0], "2 steps were trained, not 3"),
    ],
    ids=["the same", "wrong gradients", "NaN", "too few steps"],
)
def test_losses_are_compared(losses, said, parts):
    reference = RESULTS["training"]["torch_cpu"][: len(losses)]
    parts["children"]["training"] = {**RESULTS["training"], "ours": losses, "torch_cpu": reference}
    data = Certification("cpu").run()
    assert bool(failures(data)) == bool(said)
    assert said is None or said in failures(data)["training"][0]
    assert data["parts"]["training"]["results"]["allowed_relative_difference"] == 5e-3


def test_an_owner_who_is_called_like_the_preset_or_the_card_loses_neither(parts, monkeypatch):
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "raphael")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "gfx1036")
    monkeypatch.setenv("USERNAME", "linux")
    gpu = Gpu("amd", "gfx1036", 0.5, "Radeon Graphics (Raphael)", integrated=True)
    data = Certification(machine=Machine("linux", overlays=("linux",), gpus=(gpu,), torch="2.10.0", build="hip")).run()
    assert (data["preset"]["name"], data["card"]["gfx"]) == ("raphael", "gfx1036")
    assert (data["stack"]["system"], data["stack"]["overlays"]) == ("linux", ["linux"])


def test_a_wrong_kernel_of_ours_fails_and_one_of_torch_is_recorded(parts, monkeypatch):
    bad = {"kernel/gemm/fp32/nchw/unfold": "wrong", "kernel/vendor/fp16/nchw/vendor": "segfault"}
    lost = ("kernel/triton/bf16/nhwc/triton_l", "kernel/gemm/bf16/nhwc/columns")

    def probes(wanted, *_):
        outcomes = []
        for probe in wanted:
            status = bad.get(probe.name, "ok")
            detail = {**RIGHT, "error": 1e-3} if status == "wrong" else RIGHT if status == "ok" else {}
            outcome = ProbeOutcome(probe.name, status, "", 0.5 if detail else None, 1.0, detail)
            if probe.name == lost[0]:
                outcome = ProbeOutcome(probe.name, "skipped", "Triton is not installed", seconds=0.1)
            elif probe.name == lost[1]:
                outcome = ProbeOutcome(probe.name, "skipped", "1200 s were over")
            outcomes.append(outcome)
        return Answers(tuple(outcomes))

    monkeypatch.setattr(certify, "run_probes", probes)
    data = Certification("cpu").run()
    kernels = data["parts"]["kernels"]
    assert sorted(kernels["failures"]) == [
        "gemm/bf16/nhwc/columns: skipped, 1200 s were over",
        "gemm/fp32/nchw/unfold: wrong, forward of 3x3: error 1.0e-03, allowed 2.0e-07",
    ]
    assert kernels["results"]["torch_own_failures"] == ["vendor/fp16/nchw/vendor: segfault"]
    assert kernels["results"]["not_supported"] == [
        {"reason": "Triton is not installed", "what": ["triton/bf16/nhwc/triton_l"]}
    ]
    assert set(failures(data)) == {"kernels"}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_kernels_made_wrong_on_purpose_are_reported():
    """In their own process, as the command runs them; all other kernels are tried all the same."""
    certification = Certification("cpu", quick=True, kernels_command=[sys.executable, "-c", SICK, "--device", "cpu"])
    found = certification._kernels(lambda *_: None)
    failed = dict(words.split(": ", 1) for words in found.failures)
    sick = ("unfold", "planes", "columns")
    assert {f"gemm/fp32/{layout}/{name}" for layout in ("nchw", "nhwc") for name in sick} <= set(failed)
    assert failed["gemm/fp32/nchw/unfold"].startswith("wrong, forward of")
    assert "segfault" in failed["gemm/fp32/nchw/planes"]
    assert "hipErrorNoBinaryForGpu" in failed["gemm/fp32/nhwc/columns"]
    assert found.results["tried"]["gemm/fp32/nchw/pointwise"]["status"] == "ok"


def test_a_vendor_library_that_ends_processes_stays_out_of_the_benchmarks(parts):
    for died in (False, True):
        parts.update(died=died, calls=[])
        data = Certification("cpu").run()
        assert [settings["vendor"] for part, settings in parts["calls"] if "bench" in part] == [not died] * 2
        assert ("with_vendor_library" in data["parts"]["bench_conv"]["results"]) == died


def test_a_benchmark_that_fails_with_the_vendor_library_is_run_without(parts, monkeypatch):
    """MIOpen that searches without end, or takes the process down, fails no certificate of ours."""
    child = certify.in_child

    def sick(part, settings, *rest):
        if settings.get("vendor"):
            raise PartError("no result within 300 s")
        return child(part, settings, *rest)

    monkeypatch.setattr(certify, "in_child", sick)
    data = Certification("cpu").run()
    assert failures(data) == {}
    assert data["parts"]["bench_train"]["results"]["with_vendor_library"] == "no result within 300 s"


def test_an_amd_card_is_certified_with_its_preset(parts):
    data = Certification(machine=AMD).run()
    assert data["card"] == {
        "kind": "amd", "name": "Radeon RX 5600 XT", "gfx": "gfx1010", "presents_as": None, "memory_gb": 6.0,
        "integrated": False,
    }  # fmt: skip
    assert data["preset"] == {"name": "rx5600xt", "engine": "gemm", "vendor": "off"}
    assert parts["calls"][0][1] == {"device": "0", "preset": "auto", "rocm": {"conv": {"tune": "off"}}}
    assert [settings["batch"] for part, settings in parts["calls"] if "bench" in part] == [8, 8]


def test_an_nvidia_card_is_certified_as_what_it_is(parts):
    data = Certification(machine=NVIDIA).run()
    assert (data["card"]["kind"], data["card"]["name"], data["preset"]["name"]) == ("nvidia", "H200", "generic")
    from yolo_rocm.preset.evidence import Certificate

    found = Evidence("x.json", Certificate.model_validate(data))
    assert (found.speaks_for("nvidia", {}), found.speaks_for("generic", {}), found.family) == (True, False, None)


def test_a_device_that_is_none():
    with pytest.raises(ConfigError, match="'cuda' or 'cpu', got 'tpu'"):
        Certification("tpu")


def test_nothing_about_the_writer_is_in_the_file(parts, monkeypatch):
    """A user who is called like a word of ours, a host, a home folder, a token, and paths of the disk."""
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "training")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "deep-thought.example.org")
    monkeypatch.setattr(Path, "home", lambda: Path("/data/homes/zaphod"))
    monkeypatch.setenv("HF_TOKEN", "sesame-open-1234")
    said = "training@deep-thought: /data/homes/zaphod/x.py and /mnt/disk/zaphod/y.so, sesame-open-1234 [deep-thought]"
    parts["children"]["bench_conv"] = PartError(said)
    data = Certification("cpu").run()
    text = json.dumps({**data, "parts": {**data["parts"], "training": None}})
    for word in ("zaphod", "deep-thought", "sesame", "/mnt", "/data", getpass.getuser(), socket.gethostname()):
        assert word not in text.replace('"training"', "")
    assert "<host>" in data["parts"]["bench_conv"]["failures"][0]
    assert "training" in data["parts"]


def test_numbers_that_json_does_not_have_and_long_ones():
    assert cleaned({"a": [float("nan"), float("inf"), 1.23456789, 7, True, None]}) == {
        "a": [None, None, 1.23457, 7, True, None]
    }
