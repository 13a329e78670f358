"""A certification: failures are recorded and the other parts still run; the file holds nothing about its writer."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from yolo_rocm.bench import certify
from yolo_rocm.bench.certify import Certification
from yolo_rocm.bench.certify_facts import cleaned
from yolo_rocm.bench.certify_parts import HeldError, PartError, kernel_names, norm_names
from yolo_rocm.diagnosis import redaction
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.diagnosis.probe_runner import Answers, run_probes
from yolo_rocm.diagnosis.probes import DTYPES, DeviceProbe
from yolo_rocm.diagnosis.vendor_health import Health, advise
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.certificate import PARTS
from yolo_rocm.preset.evidence import Evidence, digest_of
from yolo_rocm.preset.resolve import resolve

from ..short_products import CHILD as SHORT
from .test_certify_kernels import SICK

pytestmark = pytest.mark.once
RIGHT = {"error": 1e-7, "allowed": 2e-7, "pass": "forward", "problem": "3x3", "results": 6}
RESULTS = {
    "training": {
        "ours": [4.0, 3.0, 1.0], "torch_cpu": [4.0, 3.0, 1.0], "computed_by": "64 gemm", "shapes_of_ours": 20,
        "norms_computed_by": {"forward by torch": 9, "backward by torch": 9},
    },
    "bench_conv": {"totals_ms": {"vendor": {"sum": 2.0}, "auto": {"sum": 1.0}}},
    "bench_train": {"ways": {}, "summary": "ours is faster", "failures": []},
}  # fmt: skip
AMD = Machine(
    system="linux", overlays=("linux",), gpus=(Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT"),), torch="2.10.0",
    build="hip", hip="7.0.1",
)  # fmt: skip
NVIDIA = Machine(system="linux", overlays=("linux",), gpus=(Gpu("nvidia", name="H200"),), torch="2.11.0", build="cuda")


@pytest.fixture
def parts(monkeypatch):
    """Stand-ins for all that is slow, to be changed by a test: what children return, what the probes say."""
    children = {**RESULTS, "kernel_names": kernel_names({"quick": False})}
    children["norm_names"] = norm_names({"quick": False})
    said = {"children": children, "calls": [], "environ": {}, "died": False, "probed": {}, "doctor": ()}

    class Found:
        verdict = type("Verdict", (), {"works": True, "text": "Training will work.", "next": ""})
        findings, triton, hip = (), "none", "none"

        @property
        def outcomes(self):
            dead = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "segfault", "SIGSEGV")
            found = ProbeOutcome("device", "ok", detail=said["probed"])
            return (found, *((dead,) if said["died"] else ()), *said["doctor"])

    def child(part, settings, environ, limit_s):
        if not part.endswith("_names"):
            said["calls"].append((part, settings))
        said["environ"][part] = dict(environ)
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
    assert tuple(data["parts"]) == PARTS
    assert [part for part, _ in parts["calls"]] == ["training", "bench_conv", "bench_train"]


def test_a_library_that_leaves_long_products_unwritten_is_in_the_file(parts):
    probes = [DeviceProbe("long_gemm", dtype=dtype) for dtype in ("fp32", "fp16")]
    parts["doctor"] = run_probes(probes, [sys.executable, "-c", SHORT, "--device", "cpu"]).outcomes
    doctor = Certification("cpu").run()["parts"]["doctor"]
    assert (
        "; torch's own product of 528,384 rows fails (fp32: nan, NaN or infinity in the result)." in doctor["summary"]
    )
    assert doctor["results"]["probes"]["long_gemm/fp32"].startswith("nan")
    assert doctor["results"]["probes"]["long_gemm/fp16"].startswith("ok")


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
    assert data["verdict"]["text"].startswith("3 of 6 parts failed. doctor: OSError: no torch; training: the process")


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


@pytest.mark.parametrize("tried", [0, 1])
def test_kernels_of_triton_that_were_not_run_are_no_silent_matter(tried, parts, monkeypatch):
    def probes(wanted, *_):
        left = [p.name for p in wanted if p.way == "triton"][tried:]
        outcomes = {p.name: ProbeOutcome(p.name, "ok", "", 0.5, 1.0, RIGHT) for p in wanted}
        skipped = {name: ProbeOutcome(name, "skipped", "Triton is not installed", seconds=0.1) for name in left}
        return Answers(tuple({**outcomes, **skipped}.values()))

    monkeypatch.setattr(certify, "run_probes", probes)
    summary = Certification("cpu").run()["parts"]["kernels"]["summary"]
    assert ("Triton not run" in summary) == (not tried)


@pytest.mark.deep
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
    assert data["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    assert parts["calls"][0][1] == {
        "device": "0", "preset": "auto", "rocm": {"conv": {"tune": "off", "vendor": "off"}},
    }  # fmt: skip
    assert [settings["batch"] for part, settings in parts["calls"] if "bench" in part] == [16, 16]


def test_an_nvidia_card_is_certified_as_what_it_is(parts):
    data = Certification(machine=NVIDIA).run()
    assert (data["card"]["kind"], data["card"]["name"], data["preset"]["name"]) == ("nvidia", "H200", "generic")
    from yolo_rocm.preset.certificate import Certificate

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


def test_only_shipped_presets_and_folders_of_its_own_have_a_part_in_it(parts, monkeypatch, tmp_path):
    """Neither the owner's choice of a preset nor their own presets; and their cache stays as it is."""
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "janes-card.yaml").write_text("match: {gfx: [gfx1010]}\nconv: {engine: aten}\n")
    users = {"YOLO_ROCM_CONFIG": str(tmp_path), "YOLO_ROCM_CACHE": str(tmp_path / "cache"), "TRITON_INTERPRET": "1"}
    seen = {}

    def examined(**_):
        seen.update(os.environ)
        raise OSError("no torch")

    monkeypatch.setattr(certify, "doctor", examined)
    for name, value in {**users, "YOLO_ROCM_PRESET": "cpu"}.items():
        monkeypatch.setenv(name, value)
    data = Certification(machine=AMD).run()
    assert data["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    for environ in (seen, *parts["environ"].values()):
        assert not {"YOLO_ROCM_PRESET", "TRITON_INTERPRET"} & set(environ)
        assert environ["YOLO_ROCM_CACHE"] == seen["YOLO_ROCM_CACHE"] != users["YOLO_ROCM_CACHE"]
        assert environ["YOLO_ROCM_CONFIG"] != users["YOLO_ROCM_CONFIG"]
    assert not Path(seen["YOLO_ROCM_CACHE"]).parent.exists()
    assert {name: os.environ[name] for name in users} == users
    assert os.environ["YOLO_ROCM_PRESET"] == "cpu"


def test_the_doctor_does_not_turn_the_vendor_library_on(parts):
    """A healthy MIOpen would otherwise train in place of ours, in a file that says it was off."""
    rx6700 = Gpu("amd", "gfx1031", 12.0, "Radeon RX 6700 XT")
    certification = Certification(machine=dataclasses.replace(AMD, gpus=(rx6700,)))
    conv, healthy = certification.settings.preset.conv, dict.fromkeys(DTYPES, True)
    assert (conv.engine, conv.vendor) == ("auto", "off")
    assert advise(conv, Health(healthy, healthy)).vendor_library
    explicit = "conv.vendor" in resolve("auto", certification.rocm, machine=certification.machine).explicit
    assert not advise(conv, Health(healthy, healthy), explicit).vendor_library


def test_a_training_that_ours_had_no_part_in_has_failed(parts):
    parts["children"]["training"] = {**RESULTS["training"], "shapes_of_ours": 0, "computed_by": "64 vendor"}
    assert failures(Certification("cpu").run()) == {
        "training": ["no convolution was computed by an engine of ours: 64 vendor"]
    }


INTEGRATED = Gpu("amd", "gfx1036", 0.5, "Radeon Graphics", integrated=True, node=1)
NAMELESS = dataclasses.replace(INTEGRATED, name=None)
RX6700XT = Gpu("amd", "gfx1031", 12.0, "Radeon RX 6700 XT", node=2)
RX6750XT = Gpu("amd", "gfx1031", 12.0, "Radeon RX 6750 XT", node=3)


@pytest.mark.parametrize(
    ("gpus", "probed", "card"),
    [
        ((INTEGRATED, RX6700XT), {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031"}, RX6700XT),
        ((INTEGRATED, RX6700XT), {"name": "AMD Radeon Graphics", "gfx": "gfx1036"}, INTEGRATED),
        ((NAMELESS, RX6700XT), {"name": "Radeon Graphics", "gfx": "gfx1036"}, INTEGRATED),
        ((RX6700XT, RX6750XT), {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031"}, RX6700XT),
        ((RX6700XT, RX6750XT), {"name": "AMD Radeon RX 6750 XT", "gfx": "gfx1031"}, RX6750XT),
        ((RX6700XT,), {"name": "AMD Radeon Graphics", "gfx": "gfx1031"}, RX6700XT),
    ],
    ids=["the card", "the processor's", "by its target", "the first of two", "the second of two", "no name"],
)
def test_the_card_is_the_one_that_ran(gpus, probed, card, parts):
    parts["probed"] = probed
    data = Certification(machine=dataclasses.replace(AMD, gpus=gpus)).run()
    assert (data["card"]["name"], data["card"]["gfx"], data["card"]["integrated"]) == (
        card.name, card.gfx, card.integrated,
    )  # fmt: skip
    assert [bool(failures(data)), "doctor" in failures(data)] == [card not in (RX6700XT,)] * 2
    if failures(data):
        assert probed["name"] in failures(data)["doctor"][0]
        assert "HIP_VISIBLE_DEVICES" in failures(data)["doctor"][0]


@pytest.mark.parametrize(
    ("variables", "gpus", "probed", "card"),
    [
        ({}, (RX6700XT,), "gfx1030", ("gfx1031", "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION_2": "10.3.0"}, (RX6700XT,), "gfx1030", ("gfx1031", "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION_0": "10.3.0"}, (), "gfx1030", (None, "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, (), "gfx1030", (None, "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, (), "gfx1031", ("gfx1031", None)),
        ({}, (), "gfx1031", ("gfx1031", None)),
    ],
    ids=["the preset's", "of a node", "of a node, no sysfs", "no sysfs", "without effect", "none"],
)
def test_an_override_is_recorded(variables, gpus, probed, card, parts, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine = dataclasses.replace(AMD, gpus=gpus)
    machine.__dict__["archs"] = ("gfx1030",)
    parts["probed"] = {"name": "AMD Radeon RX 6700 XT", "gfx": probed}
    data = Certification("cuda", machine=machine).run()
    assert (data["card"]["gfx"], data["card"]["presents_as"]) == card
    assert failures(data) == {}


@pytest.mark.parametrize("where", ["doctor", "training"])
def test_nothing_more_is_asked_of_a_gpu_that_is_held(where, parts):
    """A process that cannot be killed holds it: all others would hang too. The CPU is not held by anything."""
    if where == "doctor":
        hang = "no answer within 20 s, and the process cannot be killed"
        parts["doctor"] = (ProbeOutcome("conv/vendor/fp32/nchw/1x1", "hang", hang),)
    else:
        parts["children"]["training"] = HeldError("no result within 600 s, and the process cannot be killed")
    skipped = {name: part["summary"] for name, part in Certification(machine=AMD).run()["parts"].items()}
    held = [name for name, summary in skipped.items() if "not run: a process that cannot be killed" in summary]
    after = ["bench_conv", "bench_train"]
    assert held == (after if where == "training" else ["kernels", "norms", "training", *after])
    assert not any("not run" in part["summary"] for part in Certification("cpu").run()["parts"].values())


def test_a_benchmark_that_holds_the_gpu_is_not_run_again(parts):
    parts["children"]["bench_conv"] = HeldError("no result within 300 s, and the process cannot be killed")
    Certification(machine=AMD).run()
    assert [part for part, _ in parts["calls"]] == ["training", "bench_conv"]


@pytest.mark.parametrize(
    ("device", "build", "said"),
    [
        (None, "hip", "is a hip build, but no GPU found. Pass --device cuda"),
        (None, "cuda", "is a cuda build, but no GPU found"),
        ("cuda", "cpu", "is a cpu build and can use no GPU"),
        ("cuda", None, "is missing and can use no GPU"),
    ],
)
def test_a_torch_that_does_not_fit_the_device_is_refused(device, build, said):
    with pytest.raises(ConfigError, match=said):
        Certification(device, machine=Machine(build=build))


def test_a_gpu_that_only_torch_finds_is_trained_with_the_generic_preset(parts):
    parts["probed"] = {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031", "memory_gb": 12.0}
    data = Certification("cuda", machine=Machine(build="hip", torch="2.10.0")).run()
    assert (data["card"]["kind"], data["card"]["gfx"], data["preset"]["name"]) == ("amd", "gfx1031", "generic")


def test_each_part_is_announced_with_its_limit(parts):
    said = []
    Certification("cpu").run(lambda name, limit_s: said.append((name, limit_s)))
    assert said == [
        ("doctor", 360), ("kernels", 1320), ("norms", 1320), ("training", 600), ("bench_conv", 900),
        ("bench_train", 900),
    ]  # fmt: skip


def test_a_torch_that_does_not_import_is_no_matter_here():
    """It is the parts' processes that import it, and whose failure is recorded."""
    code = "import sys; sys.modules['torch'] = None; import yolo_rocm.bench.certify as c; c.Certification('cpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
