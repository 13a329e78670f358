"""A certification: failures are recorded and the other parts still run; the file holds nothing about its writer."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from yolo_rocm.bench import certify as bench
from yolo_rocm.bench.certify import ENGINES, LIMITS_S, certify, checked_device, cleaned
from yolo_rocm.diagnosis import redaction
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.evidence import Certificate, Evidence, seal
from yolo_rocm.utils.child_process import ChildResult

from ..certificates import PARTS

pytestmark = pytest.mark.once
AMD = Machine(
    system="linux", overlays=("linux",), gpus=(Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT"),), torch="2.10.0",
    build="hip", hip="7.0.1",
)  # fmt: skip
NVIDIA = Machine(system="linux", overlays=("linux",), gpus=(Gpu("nvidia", name="H200"),), torch="2.11.0", build="cuda")
DEMO = {"map50": 0.9, "epochs": 12, "patched": "20 convolution layers: 20 gemm"}
STEPS = {"ways": {}, "summary": "ours is faster", "failures": []}
DEAD = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "segfault", "SIGSEGV")
HELD = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "hang", "no answer within 20 s, and the process cannot be killed")


@pytest.fixture
def run(monkeypatch):
    """Return stand-ins for the doctor and the children: `outcomes`, `probed`, and `answers` by part; and the calls."""

    class Stage:
        outcomes, probed, answers, calls, environ = (), {}, {}, [], []

    stage = Stage()

    def doctor(**_):
        outcomes = (ProbeOutcome("device", "ok", detail=stage.probed), *stage.outcomes)
        verdict = type("Verdict", (), {"works": True, "text": "Training will work.", "next": ""})
        return type("D", (), {"outcomes": outcomes, "verdict": verdict, "findings": (), "triton": "", "hip": ""})

    def child(module, settings, limit_s, env):
        stage.calls.append(settings)
        stage.environ.append(env)
        tried = {f"{settings.get('engine')}/{settings.get('dtype')}/nchw/conv/a": {"error": 0.5, "results": 6}}
        usual = {"kernels": {"tried": tried}, "demo": DEMO, "bench_train": STEPS}
        answer = stage.answers.get(settings["part"], usual[settings["part"]])
        answer = answer(settings) if callable(answer) else answer
        return answer if isinstance(answer, ChildResult) else ChildResult(json.loads(json.dumps(answer or tried)))

    monkeypatch.setattr(bench, "doctor", doctor)
    monkeypatch.setattr(bench, "run_module", child)
    stage.calls, stage.environ, stage.answers = [], [], {}
    return stage


def failures(data) -> dict[str, list[str]]:
    return {name: part["failures"] for name, part in data["parts"].items() if part["failures"]}


def test_all_is_well(run):
    announced = []
    data = certify("cpu", announce=lambda *said: announced.append(said))
    assert failures(data) == {}
    assert (tuple(data["parts"]), announced) == (PARTS, list(LIMITS_S.items()))
    assert data == seal(data)
    assert (data["card"]["kind"], data["preset"]["engine"], data["quick"]) == ("cpu", "gemm", False)
    asked = [(call["part"], call.get("engine"), call.get("dtype")) for call in run.calls]
    assert asked[:-2] == [("kernels", engine, dtype) for engine in ENGINES for dtype in ("fp32", "fp16", "bf16")]
    assert run.calls[-2]["rocm"]["conv"]["engine"] == "gemm"


def test_a_part_that_fails_is_recorded_and_the_others_run(run, monkeypatch):
    def gone(**_):
        raise OSError("no torch")

    monkeypatch.setattr(bench, "doctor", gone)
    run.answers["demo"] = ChildResult(error="the process ended by SIGSEGV: hsa fault")
    run.answers["bench_train"] = {**STEPS, "failures": ["ours NCHW is wrong"]}
    data = certify("cpu")
    assert failures(data) == {
        "doctor": ["OSError: no torch"],
        "demo": ["the process ended by SIGSEGV: hsa fault"],
        "bench_train": ["ours NCHW is wrong"],
    }
    verdict = Certificate.model_validate(data).verdict
    assert verdict.startswith("3 of 4 parts failed. doctor: OSError: no torch; demo: the process")


@pytest.mark.parametrize(("map50", "wrong"), [(0.3, False), (0.29, True), (float("nan"), True)])
def test_a_demo_has_to_learn_but_not_in_its_first_epoch(map50, wrong, run):
    run.answers["demo"] = {**DEMO, "map50": map50}
    assert bool(failures(certify("cpu"))) == wrong
    assert not failures(certify("cpu", quick=True))


def test_kernels_that_are_wrong_or_end_their_process(run):
    def answer(given):
        name = f"{given['engine']}/{given['dtype']}"
        tried = {f"{name}/a": {"error": 0.1}}
        if name == "gemm/fp32":
            return {"tried": {f"{name}/a": {"wrong": "forward is off"}}}
        if name in ("hip/fp16", "vendor/fp16"):
            return ChildResult({"tried": tried, "next": f"{name}/b"}, error="the process ended by SIGSEGV")
        return {"tried": {}, "not_supported": "no Triton"} if given["engine"] == "triton" else {"tried": tried}

    run.answers["kernels"] = answer
    kernels = certify("cpu")["parts"]["kernels"]
    died = "hip/fp16, hip/fp16/b: the process ended by SIGSEGV"
    assert kernels["failures"] == ["gemm/fp32/a: forward is off", died]
    assert kernels["results"]["torch_own_failures"] == [died.replace("hip", "vendor")]
    assert kernels["results"]["not_supported"]["triton/fp32"] == "no Triton"
    said = "5 of 6 of ours right (operator, algorithm, data type, layout); wrong or failing of torch's own: 1"
    assert kernels["summary"] == f"{said}; not run: triton"


def test_without_a_right_kernel_of_ours_nothing_is_shown(run):
    run.answers["kernels"] = {"tried": {}}
    assert failures(certify("cpu"))["kernels"] == ["no kernel of ours gave a right result"]


def test_a_vendor_library_that_ends_processes_or_hangs_is_left_out_of_the_benchmark(run):
    """MIOpen that searches without end, or takes the process down, fails no certificate of ours."""
    run.answers["bench_train"] = lambda given: STEPS if given["ways"] else ChildResult(error="no answer within 450 s")
    data = certify("cpu")
    assert failures(data) == {}
    assert data["parts"]["bench_train"]["results"]["with_vendor_library"] == "no answer within 450 s"
    run.outcomes, run.calls[:] = (DEAD,), []
    certify("cpu")
    assert [call["ways"] for call in run.calls if call["part"] == "bench_train"] == ["vendor off,ours,ours lean"]


def test_an_amd_card_is_certified_with_its_preset(run):
    data = certify(machine=AMD)
    assert data["card"] == {
        "kind": "amd", "name": "Radeon RX 5600 XT", "gfx": "gfx1010", "presents_as": None, "memory_gb": 6.0,
        "integrated": False,
    }  # fmt: skip
    assert data["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    assert run.calls[-2]["rocm"] == {"conv": {"vendor": "off"}}  # whatever the doctor learns of MIOpen


def test_other_cards_are_certified_as_what_they_are(run):
    data = certify(machine=NVIDIA)
    assert (data["card"]["kind"], data["card"]["name"], data["preset"]["name"]) == ("nvidia", "H200", "generic")
    evidence = Evidence("x.json", Certificate.model_validate(data))
    assert (evidence.speaks_for("nvidia", {}), evidence.speaks_for("generic", {})) == (True, False)
    run.probed = {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031", "memory_gb": 12.0}
    data = certify("cuda", machine=Machine(build="hip", torch="2.10.0"))  # a GPU that only torch finds
    assert (data["card"]["kind"], data["card"]["gfx"], data["preset"]["name"]) == ("amd", "gfx1031", "generic")


INTEGRATED = Gpu("amd", "gfx1036", 0.5, "Radeon Graphics", integrated=True, node=1)
RX6700XT = Gpu("amd", "gfx1031", 12.0, "Radeon RX 6700 XT", node=2)
RX6750XT = Gpu("amd", "gfx1031", 12.0, "Radeon RX 6750 XT", node=3)


@pytest.mark.parametrize(
    ("gpus", "probed", "card"),
    [
        ((INTEGRATED, RX6700XT), {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031"}, RX6700XT),
        ((INTEGRATED, RX6700XT), {"name": "AMD Radeon Graphics", "gfx": "gfx1036"}, INTEGRATED),
        ((RX6700XT, RX6750XT), {"name": "AMD Radeon RX 6750 XT", "gfx": "gfx1031"}, RX6750XT),
        ((RX6700XT,), {"name": "AMD Radeon Graphics", "gfx": "gfx1031"}, RX6700XT),
    ],
    ids=["the card", "the processor's", "the second of two", "no name"],
)
def test_the_card_is_the_one_that_ran(gpus, probed, card, run):
    run.probed = probed
    data = certify(machine=replace(AMD, gpus=gpus))
    assert (data["card"]["name"], data["card"]["gfx"]) == (card.name, card.gfx)
    assert ("doctor" in failures(data)) == (card is not RX6700XT)
    assert "doctor" not in failures(data) or "HIP_VISIBLE_DEVICES" in failures(data)["doctor"][0]


@pytest.mark.parametrize(
    ("variables", "gpus", "probed", "card"),
    [
        ({"HSA_OVERRIDE_GFX_VERSION_2": "10.3.0"}, (RX6700XT,), "gfx1030", ("gfx1031", "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION_0": "10.3.0"}, (), "gfx1030", (None, "gfx1030")),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, (), "gfx1031", ("gfx1031", None)),
        ({}, (), "gfx1031", ("gfx1031", None)),
    ],
    ids=["of a node", "no sysfs", "without effect", "none"],
)
def test_an_override_is_recorded(variables, gpus, probed, card, run, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine = replace(AMD, gpus=gpus)
    machine.__dict__["archs"] = ("gfx1030",)
    run.probed = {"name": "AMD Radeon RX 6700 XT", "gfx": probed}
    data = certify("cuda", machine=machine)
    assert (data["card"]["gfx"], data["card"]["presents_as"]) == card
    assert failures(data) == {}


@pytest.mark.parametrize("where", ["doctor", "demo"])
def test_nothing_more_is_asked_of_a_gpu_that_is_held(where, run):
    """A process that cannot be killed holds it: all others would hang too. The CPU is not held by anything."""
    if where == "doctor":
        run.outcomes = (HELD,)
    else:
        run.answers["demo"] = ChildResult(error="no answer within 600 s", unkillable=True)
    parts = certify(machine=AMD)["parts"]
    after = [name for name, part in parts.items() if "not run: a process that cannot be killed" in part["summary"]]
    assert after == (["bench_train"] if where == "demo" else ["kernels", "demo", "bench_train"])
    assert not any("not run" in part["summary"] for part in certify("cpu")["parts"].values())


@pytest.mark.parametrize(
    ("device", "build", "said"),
    [
        ("tpu", "cpu", "'cuda' or 'cpu', got 'tpu'"),
        (None, "hip", "is a hip build, but no GPU found. Pass --device cuda"),
        ("cuda", "cpu", "is a cpu build and can use no GPU"),
        ("cuda", None, "is missing and can use no GPU"),
    ],
)
def test_a_torch_that_does_not_fit_the_device_is_refused(device, build, said):
    with pytest.raises(ConfigError, match=said):
        checked_device(device, Machine(build=build))


def test_nothing_about_the_writer_is_in_the_file(run, monkeypatch):
    """A user who is called like a word of ours, a host, a home folder, a token, and paths of the disk."""
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "demo")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "deep-thought.example.org")
    monkeypatch.setattr(Path, "home", lambda: Path("/data/homes/zaphod"))
    monkeypatch.setenv("HF_TOKEN", "sesame-open-1234")
    said = "demo@deep-thought: /data/homes/zaphod/x.py and /mnt/disk/zaphod/y.so, sesame-open-1234 [deep-thought]"
    run.answers["bench_train"] = ChildResult(error=said)
    data = certify("cpu")
    text = json.dumps(data).replace('"demo"', "")
    for word in ("zaphod", "deep-thought", "sesame", "/mnt", "/data", "demo"):
        assert word not in text
    assert "<host>" in data["parts"]["bench_train"]["failures"][0]
    assert "demo" in data["parts"]
    numbers = {"a": [float("nan"), float("inf"), 1.23456789, 7, True, None]}
    assert cleaned(numbers) == {"a": [None, None, 1.23457, 7, True, None]}


def test_an_owner_who_is_called_like_the_preset_or_the_card_loses_neither(run, monkeypatch):
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "raphael")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "gfx1036")
    gpu = Gpu("amd", "gfx1036", 0.5, "Radeon Graphics (Raphael)", integrated=True)
    data = certify(machine=Machine("linux", overlays=("linux",), gpus=(gpu,), torch="2.10.0", build="hip"))
    assert (data["preset"]["name"], data["card"]["gfx"]) == ("raphael", "gfx1036")


def test_only_shipped_presets_and_folders_of_its_own_have_a_part_in_it(run, monkeypatch, tmp_path):
    """Neither the owner's choice of a preset nor their own presets; and their cache stays as it is."""
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "janes-card.yaml").write_text("match: {gfx: [gfx1010]}\nconv: {engine: aten}\n")
    own = {"YOLO_ROCM_CONFIG": str(tmp_path), "YOLO_ROCM_CACHE": str(tmp_path / "cache"), "TRITON_INTERPRET": "1"}
    for name, value in {**own, "YOLO_ROCM_PRESET": "cpu"}.items():
        monkeypatch.setenv(name, value)
    assert certify(machine=AMD)["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    for environ in run.environ:
        assert not {"YOLO_ROCM_PRESET", "TRITON_INTERPRET"} & set(environ)
        assert environ["YOLO_ROCM_CACHE"] != own["YOLO_ROCM_CACHE"]
        assert environ["YOLO_ROCM_CONFIG"] != own["YOLO_ROCM_CONFIG"]
        assert environ["YOLO_ROCM"] is None
    assert not Path(run.environ[0]["YOLO_ROCM_CACHE"]).parent.exists()
    assert {name: os.environ[name] for name in own} == own
    assert os.environ["YOLO_ROCM_PRESET"] == "cpu"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_whoever_ends_it_gets_an_exception_that_cleans_up(run):
    before = signal.getsignal(signal.SIGTERM)
    run.answers["demo"] = lambda _: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as left:
        certify("cpu")
    assert left.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
