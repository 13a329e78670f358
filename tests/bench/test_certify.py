"""A certification: failures are recorded and the other parts still run; the file holds nothing about its writer."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from yolo_rocm.bench import certify as bench
from yolo_rocm.bench.certify import ENGINES, LIMITS_S, certify, checked_device
from yolo_rocm.diagnosis import redaction
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.evidence import Certificate, Evidence, seal
from yolo_rocm.utils.child_process import ChildResult

from ..certificates import PARTS
from ..tables import each_row

pytestmark = pytest.mark.once
RX5600XT = Gpu("amd", "gfx1010", 6.0, "Radeon RX 5600 XT")
AMD = Machine(system="linux", overlays=("linux",), gpus=(RX5600XT,), torch="2.10.0", build="hip", hip="7.0.1")
NVIDIA = Machine(system="linux", overlays=("linux",), gpus=(Gpu("nvidia", name="H200"),), torch="2.11.0", build="cuda")
DEMO = {"map50": 0.9, "epochs": 12, "patched": "20 convolution layers: 20 gemm"}
STEPS = {"summary": "ours is faster", "failures": [], "results": {"ways": {}}}
DEAD = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "segfault", "SIGSEGV")
HELD = ProbeOutcome("conv/vendor/fp32/nchw/1x1", "hang", "no answer within 20 s, and the process cannot be killed")


@pytest.fixture
def stage(monkeypatch):
    """Stand-ins for the doctor and the children: `outcomes`, `probed`, and `answers` by part; and the calls."""

    class Stage:
        outcomes, probed, answers, calls, environ = (), {}, {}, [], []

    stage = Stage()
    stage.answers, stage.calls, stage.environ = {}, [], []

    def doctor(**_):
        outcomes = (ProbeOutcome("device", "ok", detail=stage.probed), *stage.outcomes)
        verdict = type("Verdict", (), {"works": True, "text": "Training will work.", "next": ""})
        return type("D", (), {"outcomes": outcomes, "verdict": verdict, "findings": (), "triton": "", "hip": ""})

    def child(module, settings, limit_s, env):
        stage.calls.append(settings)
        stage.environ.append(env)
        tried = {f"{settings.get('engine')}/fp32/nchw/conv/a": {"error": 0.5, "results": 6}}
        usual = {"kernels": {"tried": tried}, "demo": DEMO, "bench_train": STEPS}
        answer = stage.answers.get(settings["part"], usual[settings["part"]])
        answer = answer(settings) if callable(answer) else answer
        return answer if isinstance(answer, ChildResult) else ChildResult(json.loads(json.dumps(answer)))

    monkeypatch.setattr(bench, "doctor", doctor)
    monkeypatch.setattr(bench, "run_module", child)
    return stage


def failures(data) -> dict[str, list[str]]:
    return {name: part["failures"] for name, part in data["parts"].items() if part["failures"]}


def test_all_is_well(stage):
    announced = []
    data = certify("cpu", announce=lambda *said: announced.append(said))
    assert failures(data) == {}
    assert (tuple(data["parts"]), announced) == (PARTS, list(LIMITS_S.items()))
    assert data == seal(data)
    assert (data["card"]["kind"], data["preset"]["engine"], data["quick"]) == ("cpu", "gemm", False)
    assert [call.get("engine") for call in stage.calls] == [*ENGINES, None, None]
    assert stage.calls[0]["dtypes"] == ("fp32", "fp16", "bf16")
    assert stage.calls[-2]["rocm"]["conv"]["engine"] == "gemm"


def test_a_part_that_fails_is_recorded_and_the_others_run(stage, monkeypatch):
    def gone(**_):
        raise OSError("no torch")

    monkeypatch.setattr(bench, "doctor", gone)
    stage.answers["demo"] = ChildResult(error="the process ended by SIGSEGV: hsa fault")
    stage.answers["bench_train"] = {**STEPS, "failures": ["ours NCHW is wrong"]}
    data = certify("cpu")
    assert failures(data) == {
        "doctor": ["OSError: no torch"],
        "demo": ["the process ended by SIGSEGV: hsa fault"],
        "bench_train": ["ours NCHW is wrong"],
    }
    assert Certificate.model_validate(data).verdict.startswith("3 of 4 parts failed. doctor: OSError: no torch; demo:")


@pytest.mark.parametrize(("map50", "wrong"), [(0.3, False), (0.29, True), (float("nan"), True)])
def test_a_demo_has_to_learn_but_not_in_its_first_epoch(map50, wrong, stage):
    stage.answers["demo"] = {**DEMO, "map50": map50}
    assert bool(failures(certify("cpu"))) == wrong
    assert not failures(certify("cpu", quick=True))


def test_kernels_that_are_wrong_or_end_their_process(stage):
    def answer(given):
        name = f"{given['engine']}/fp32"
        if given["engine"] == "gemm":
            return {"tried": {f"{name}/a": {"wrong": "forward is off"}}}
        if given["engine"] in ("hip", "vendor"):
            tried = {f"{name}/a": {"error": 0.1}}
            return ChildResult({"tried": tried, "next": f"{name}/b"}, error="the process ended by SIGSEGV")
        return {"tried": {}, "not_supported": {name: "no Triton"}}

    stage.answers["kernels"] = answer
    kernels = certify("cpu")["parts"]["kernels"]
    died = "hip, hip/fp32/b: the process ended by SIGSEGV"
    assert kernels["failures"] == ["gemm/fp32/a: forward is off", died]
    assert kernels["results"]["torch_own_failures"] == [died.replace("hip", "vendor")]
    assert kernels["results"]["not_supported"]["triton/fp32"] == "no Triton"
    assert kernels["summary"].startswith("1 of 2 of ours right")
    assert kernels["summary"].endswith("wrong or failing of torch's own: 1; not run: triton")
    stage.answers["kernels"] = {"tried": {}}
    assert failures(certify("cpu"))["kernels"] == ["no kernel of ours gave a right result"]


def test_a_vendor_library_that_ends_processes_or_hangs_is_left_out_of_the_benchmark(stage):
    """MIOpen that searches without end, or takes the process down, fails no certificate of ours."""
    stage.answers["bench_train"] = lambda given: STEPS if given["ways"] else ChildResult(error="no answer within 450 s")
    data = certify("cpu")
    assert failures(data) == {}
    assert data["parts"]["bench_train"]["results"]["with_vendor_library"] == "no answer within 450 s"
    stage.outcomes, stage.calls[:] = (DEAD,), []
    certify("cpu")
    assert [call["ways"] for call in stage.calls if call["part"] == "bench_train"] == ["vendor off,ours,ours lean"]


def test_each_card_is_certified_as_what_it_is(stage):
    data = certify(machine=AMD)
    assert data["card"] == {
        "kind": "amd", "name": "Radeon RX 5600 XT", "gfx": "gfx1010", "presents_as": None, "memory_gb": 6.0,
        "integrated": False,
    }  # fmt: skip
    assert data["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    assert stage.calls[-2]["rocm"] == {"conv": {"vendor": "off"}}  # whatever the doctor learns of MIOpen
    data = certify(machine=NVIDIA)
    assert (data["card"]["kind"], data["card"]["name"], data["preset"]["name"]) == ("nvidia", "H200", "generic")
    assert Evidence("x.json", Certificate.model_validate(data)).speaks_for("nvidia", {})
    stage.probed = {"name": "AMD Radeon RX 6700 XT", "gfx": "gfx1031", "memory_gb": 12.0}
    data = certify("cuda", machine=Machine(build="hip", torch="2.10.0"))  # a GPU that only torch finds
    assert (data["card"]["kind"], data["card"]["gfx"], data["preset"]["name"]) == ("amd", "gfx1031", "generic")


@pytest.mark.parametrize(
    ("variable", "gpus", "gfx", "card", "fails"),
    [
        ("HSA_OVERRIDE_GFX_VERSION_2", (RX5600XT,), "gfx1030", ("gfx1010", "gfx1030"), False),
        ("HSA_OVERRIDE_GFX_VERSION", (RX5600XT,), "gfx1010", ("gfx1010", None), False),
        ("HOME", (RX5600XT,), "gfx1036", ("gfx1010", None), True),  # torch's first GPU is the processor's
    ],
    ids=["of a node", "without effect", "another card"],
)
def test_what_ran_is_the_card_or_what_an_override_made_of_it(variable, gpus, gfx, card, fails, stage, monkeypatch):
    monkeypatch.setenv(variable, "10.3.0")
    stage.probed = {"name": "AMD Radeon Graphics", "gfx": gfx}
    data = certify("cuda", machine=replace(AMD, gpus=gpus))
    assert (data["card"]["gfx"], data["card"]["presents_as"]) == card
    assert ("HIP_VISIBLE_DEVICES" in str(failures(data))) == fails


@pytest.mark.parametrize("where", ["doctor", "demo"])
def test_nothing_more_is_asked_of_a_gpu_that_is_held(where, stage):
    """A process that cannot be killed holds it: all others would hang too. The CPU is not held by anything."""
    if where == "doctor":
        stage.outcomes = (HELD,)
    else:
        stage.answers["demo"] = ChildResult(error="no answer within 600 s", unkillable=True)
    parts = certify(machine=AMD)["parts"]
    after = [name for name, part in parts.items() if "not run: a process that cannot be killed" in part["summary"]]
    assert after == (["bench_train"] if where == "demo" else ["kernels", "demo", "bench_train"])
    assert not any("not run" in part["summary"] for part in certify("cpu")["parts"].values())


@each_row(
    ("device", "build", "words"),
    [
        ("tpu", "cpu", "or 'cpu', got 'tpu'"),
        (None, "hip", "is a hip build, but no GPU found. Pass --device cuda"),
        ("cuda", "cpu", "no torch here that can use a GPU"),
    ],
)
def test_a_torch_that_does_not_fit_the_device_is_refused(device, build, words):
    with pytest.raises(ConfigError, match=words):
        checked_device(device, Machine(build=build))


def test_nothing_about_the_writer_is_in_the_file(stage, monkeypatch):
    """A user who is called like a word of ours, a host, a home folder, a token, and paths of the disk."""
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "demo")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "deep-thought.example.org")
    monkeypatch.setattr(Path, "home", lambda: Path("/data/homes/zaphod"))
    monkeypatch.setenv("HF_TOKEN", "sesame-open-1234")
    said = "demo@deep-thought: /data/homes/zaphod/x.py and /mnt/disk/zaphod/y.so, sesame-open-1234 [deep-thought]"
    stage.answers["bench_train"] = ChildResult(error=said)
    data = certify("cpu")
    text = json.dumps(data).replace('"demo"', "")
    for word in ("zaphod", "deep-thought", "sesame", "/mnt", "/data", "demo"):
        assert word not in text
    assert "<host>" in data["parts"]["bench_train"]["failures"][0]
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "rx5600xt")
    assert certify(machine=AMD)["preset"]["name"] == "rx5600xt"  # words of closed lists stay


def test_only_shipped_presets_and_folders_of_its_own_have_a_part_in_it(stage, monkeypatch, tmp_path):
    """Neither the owner's choice of a preset nor their own presets; and their cache stays as it is."""
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "my-card.yaml").write_text("match: {gfx: [gfx1010]}\nconv: {engine: aten}\n")
    own = {"YOLO_ROCM_CONFIG": str(tmp_path), "YOLO_ROCM_CACHE": str(tmp_path / "cache"), "TRITON_INTERPRET": "1"}
    for name, value in {**own, "YOLO_ROCM_PRESET": "cpu"}.items():
        monkeypatch.setenv(name, value)
    assert certify(machine=AMD)["preset"] == {"name": "rx5600xt", "engine": "gemm+hip", "vendor": "off"}
    for environ in stage.environ:
        assert not {"YOLO_ROCM_PRESET", "TRITON_INTERPRET"} & set(environ)
        assert environ["YOLO_ROCM_CACHE"] != own["YOLO_ROCM_CACHE"]
        assert environ["YOLO_ROCM"] is None
    assert not Path(stage.environ[0]["YOLO_ROCM_CACHE"]).parent.exists()
    assert {name: os.environ[name] for name in own} == own
