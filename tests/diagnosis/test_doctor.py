"""The examination as a whole: verdict, findings, stable data, a report without secrets, and its diagnosis of deaths."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import time

import pytest
import torch
from typer.testing import CliRunner

import yolo_rocm
from tests.fake_trees import RX5600XT, RX6600, RX7900XTX, make_torch, make_tree, old_torch, write
from yolo_rocm.cli import app
from yolo_rocm.conv.triton_engine.available import in_words_unasked
from yolo_rocm.diagnosis import bundle
from yolo_rocm.diagnosis.doctor import probe_findings
from yolo_rocm.diagnosis.findings import Finding
from yolo_rocm.diagnosis.outcome import Limits, Outcome
from yolo_rocm.diagnosis.probe_list import all_probes
from yolo_rocm.diagnosis.verdict import Setup, judge, way_out
from yolo_rocm.errors import ConfigError
from yolo_rocm.hardware import Gpu, Machine, detect

NAMES = [probe.name for probe in all_probes()]
AUTO = Setup("auto", vendor=False, amp=True)
VENDOR = Setup("vendor", vendor=True, amp=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def probed(*bad: str, status="error") -> list[Outcome]:
    """Return outcomes of all probes; those whose names begin like one of `bad` have failed."""
    return [Outcome(n, status if n.startswith(bad) else "ok", "broken" if n.startswith(bad) else "") for n in NAMES]


WAYS = {
    "all well": (AUTO, (), ()),
    "vendor sick, not used": (AUTO, ("conv/vendor", "norm/vendor"), ()),
    "fp16 bad everywhere": (AUTO, ("conv/auto/fp16", "conv/gemm/fp16", "conv/aten/fp16"), ("amp=False",)),
    "auto bad in fp16, gemm not": (AUTO, ("conv/auto/fp16",), ("amp=False",)),
    "auto bad": (AUTO, ("conv/auto",), ("rocm.conv.engine=gemm",)),
    "vendor sick, used": (VENDOR, ("conv/vendor",), ("rocm.conv.engine=auto", "rocm.conv.vendor=off")),
    "vendor's BatchNorm sick": (VENDOR, ("norm/vendor",), ("rocm.conv.engine=auto", "rocm.conv.vendor=off")),
    "vendor sick, auto steers": (Setup("auto", vendor=True, amp=True), ("norm/vendor", "conv/vendor"), ()),
    "nhwc bad": (dataclasses.replace(AUTO, channels_last=True), ("conv/auto/fp16/nhwc",), ("channels_last=False",)),
    "nhwc bad, not used": (AUTO, ("conv/auto/fp16/nhwc",), ()),
    "bf16 is not used": (AUTO, ("conv/auto/bf16", "norm/off/bf16"), ()),
    "triton errs: the run leaves it out": (AUTO, ("conv/triton",), ()),
    "triton bad, asked for": (dataclasses.replace(AUTO, engine="triton"), ("conv/triton",), ("rocm.conv.engine=auto",)),
    "triton bad beside gemm": (dataclasses.replace(AUTO, engine="gemm+triton"), ("conv/triton",), ()),
    "gemm bad beside triton": (
        dataclasses.replace(AUTO, engine="gemm+triton"),
        ("conv/gemm",),
        ("rocm.conv.engine=auto",),
    ),
    "no matrix products": (AUTO, ("gemm/fp32",), None),
    "torch's own BatchNorm bad": (AUTO, ("norm/off",), None),
}


@pytest.mark.parametrize(("setup", "bad", "arguments"), WAYS.values(), ids=WAYS.keys())
def test_the_way_out(setup, bad, arguments):
    assert way_out(setup, probed(*bad)) == arguments


@pytest.mark.parametrize("engine", ["auto", "triton", "gemm+triton"])
def test_a_triton_that_kills_the_process_is_left_out(engine):
    """The tuner would compile the same kernels inside the training."""
    setup = dataclasses.replace(AUTO, engine=engine)
    outcomes = probed("conv/triton/fp16", status="segfault")
    assert way_out(setup, outcomes) == ("amp=False",)
    outcomes = probed("conv/triton", status="segfault")
    assert way_out(setup, outcomes) == ("rocm.conv.engine=gemm",)
    assert way_out(dataclasses.replace(AUTO, engine="aten"), outcomes) == ()
    grave = [f for f in probe_findings(outcomes, setup) if f.severity == "error"]
    assert {f.id for f in grave} == {"probe-conv-triton-fp32", "probe-conv-triton-fp16"}
    assert {f.remedy for f in grave} == {"Leave Triton out: rocm.conv.engine=gemm"}


def test_a_triton_that_is_not_there_is_no_problem():
    outcomes = [
        dataclasses.replace(o, status="skipped", message="Triton is not installed") if "/triton/" in o.name else o
        for o in probed()
    ]
    assert probe_findings(outcomes, AUTO) == []
    assert way_out(AUTO, outcomes) == ()
    assert way_out(dataclasses.replace(AUTO, engine="gemm+triton"), outcomes) == ()
    asked_for = dataclasses.replace(AUTO, engine="triton")
    assert way_out(asked_for, outcomes) == ("rocm.conv.engine=auto",)


AMD = Machine(gpus=(Gpu("amd", "gfx1100", 24, "RX 7900 XTX", node=1),), torch="2.10.0", build="hip")
WRONG_TORCH = Machine(gpus=AMD.gpus, torch="2.10.0", build="cpu")
NOTHING = Machine(torch="2.10.0", build="cpu")
ERROR = Finding("arch-not-in-torch", "error", "no kernels", "install others")
NO_TORCH = Finding("torch-missing", "error", "torch is not installed", "pip install torch")
WARNING = Finding("shm-small", "warning", "small", "more")

VERDICTS = {
    "healthy": (AMD, [], probed(), "cuda", 0, True, "will work with preset p on AMD RX 7900 XTX", ""),
    "a warning is no problem": (AMD, [WARNING], probed(), "cuda", 0, True, "will work", ""),
    "an error of a check": (AMD, [ERROR], probed(), "cuda", 1, False, "at risk: no kernels", "install others"),
    "settings help": (
        AMD,
        [],
        probed("conv/auto"),
        "cuda",
        1,
        True,
        "and rocm.conv.engine=gemm",
        "yolo-rocm train preset=p",
    ),
    "nothing helps": (AMD, [], probed("gemm"), "cuda", 1, False, "will not work", "--bundle"),
    "too slow": (
        AMD,
        [],
        probed("conv/auto", "conv/gemm", "conv/aten", status="skipped"),
        "cuda",
        1,
        False,
        "too slowly",
        "again",
    ),
    "not probed": (AMD, [], [], "cuda", 0, True, "the card itself was not probed", "--no-probes"),
    "no torch": (AMD, [ERROR, NO_TORCH], [], None, 2, False, "Nothing can be trained", "pip install torch"),
    "another torch": (WRONG_TORCH, [ERROR], [], None, 1, False, "would run on the CPU", "install others"),
    "no gpu": (NOTHING, [], [], None, 0, True, "on the CPU will work with preset p: no GPU found", ""),
}


@pytest.mark.parametrize(
    ("machine", "findings", "outcomes", "device", "code", "works", "text", "following"),
    VERDICTS.values(),
    ids=VERDICTS.keys(),
)
def test_the_verdict(machine, findings, outcomes, device, code, works, text, following):
    verdict = judge(machine, "p", AUTO, findings, outcomes, device)
    assert (verdict.code, verdict.works) == (code, works)
    assert text in verdict.text
    assert following in verdict.next
    assert bool(following) == bool(verdict.next)


def test_failed_probes_become_findings_with_what_is_known():
    outcomes = [
        Outcome("conv/vendor/fp16/nchw/1x1", "error", "RuntimeError: miopenStatusUnknownError"),
        Outcome("conv/vendor/fp16/nchw/3x3", "hang", "no answer within 20 s"),
        Outcome("conv/vendor/fp16/nhwc/3x3", "skipped", "2 probes"),
        Outcome("conv/auto/fp32/nchw/3x3", "wrong", "relative error 7e-1"),
        Outcome("gemm/fp32", "abort", "SIGABRT: rocBLAS error: Cannot read /x/TensileLibrary.dat: Illegal seek"),
        Outcome("pinned", "error", "no memory"),
    ]
    said = "miopen_type_traits.hpp:151:10: fatal error: 'type_traits' file not found"
    found = {finding.id: finding for finding in probe_findings(outcomes, AUTO, said, "gfx1200")}
    assert {name: finding.severity for name, finding in found.items()} == {
        "probe-conv-vendor-fp16": "info",
        "probe-conv-auto-fp32": "error",
        "probe-gemm-fp32": "error",
        "probe-pinned": "warning",
    }
    assert "C++ headers" in found["probe-conv-vendor-fp16"].finding  # the reason MIOpen printed, not its bare status
    assert "device-gfx1200" in found["probe-gemm-fp32"].remedy
    assert found["probe-pinned"].finding == "pinned memory failed: error, no memory"
    assert found["probe-conv-auto-fp32"].sources == ()


CHILD = """
import json, sys
bad = {bad!r}
for name in sys.argv[-1].split(","):
    print(json.dumps(dict(probe=name, begin=True)), flush=True)
    if name.startswith(tuple(bad)) if bad else False:
        {act}
    print(json.dumps(dict(probe=name, error=0.0, detail=dict(name="AMD") if name == "device" else dict())), flush=True)
"""
SKIPS = 'print(json.dumps(dict(probe=name, skipped="no such card")), flush=True); continue'
RAISES = 'print(json.dumps(dict(probe=name, message="RuntimeError: miopenStatusUnknownError")), flush=True)'


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


def test_a_card_without_kernels(tmp_path):
    found = examine(tmp_path, RX5600XT, bad=("gemm",), act="import os; os.abort()", limits=Limits(start=20.0))
    assert found.verdict.code == 1
    assert '"torch[device-gfx1010]"' in found.verdict.next
    assert [o.status for o in found.outcomes if o.name == "gemm/fp32"] == ["abort"]


def test_the_old_stack_of_an_rx_5600_xt_is_probed_under_its_override(tmp_path):
    act = 'import os; print(json.dumps(dict(probe=name, message=os.environ["HSA_OVERRIDE_GFX_VERSION"])), flush=True)'
    found = examine(tmp_path, RX5600XT, bad=("pinned",), act=act, torch=old_torch)
    assert next(o for o in found.outcomes if o.name == "pinned").message == "10.3.0"
    assert found.verdict.preset == "rx5600xt"


SCHEMA = {
    "schema": 1,
    "version": str,
    "verdict": {"text": str, "next": str, "works": bool, "preset": str, "code": int},
    "machine": {
        **dict.fromkeys(("system", "python", "torch", "build"), str),
        **dict.fromkeys(("kernel", "distribution", "hip", "rocm", "amdgpu", "ultralytics", "ram_gb", "shm_gb"), object),
        "overlays": list,
        "gpus": list,
        "cores": int,
        "archs": list,
        "rocblas_archs": list,
    },
    "preset": {"preset": str, "why": str, "values": dict, "notes": list},
    "findings": list,
    "probes": list,
    "vendor": {"conv": dict, "norm": dict},
    "triton": str,
}
FINDING_KEYS = {"id", "severity", "finding", "remedy", "sources"}
PROBE_KEYS = {"name", "status", "message", "error", "seconds", "detail"}
GPU_KEYS = {"name", "vendor", "gfx", "presents_as", "vram_gb", "integrated", "hidden_by"}


def fits(data, schema) -> bool:
    if isinstance(schema, dict):
        return set(data) == set(schema) and all(fits(data[key], schema[key]) for key in schema)
    return isinstance(data, schema) if isinstance(schema, type) else data == schema


def test_the_shape_of_the_data_is_stable(tmp_path):
    nan = 'print(json.dumps(dict(probe=name, error=float("nan"))), flush=True)'
    found = examine(tmp_path, RX6600, bad=("conv/vendor/fp16",), act=nan)
    data = json.loads(json.dumps(found.as_dict(), default=str, allow_nan=False))
    assert fits(data, SCHEMA)
    assert data["findings"]
    assert all(set(row) == FINDING_KEYS for row in data["findings"])
    assert all(set(row) == PROBE_KEYS for row in data["probes"])
    assert all(set(row) == GPU_KEYS for row in data["machine"]["gpus"])
    assert {row["status"] for row in data["probes"]} == {"ok", "nan"}


def test_wrong_devices_are_refused():
    with pytest.raises(ConfigError, match="'cuda' or 'cpu'"):
        yolo_rocm.doctor(device="gpu")


def test_without_a_gpu_it_is_quick_and_loads_no_torch():
    code = (
        "import sys, time, yolo_rocm\nfrom yolo_rocm.hardware import Machine\n"
        "found = yolo_rocm.doctor(machine=Machine(torch='2.10.0', build='cpu'))\n"
        "print(found.verdict.code, 'torch' in sys.modules, 'ultralytics' in sys.modules)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 5
    assert done.stdout.split() == ["0", "False", "False"]


def test_the_report_tells_everything_but_who(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/heinrich")
    monkeypatch.setenv("USER", "heinrich")
    monkeypatch.setenv("HOSTNAME", "workhorse.example.org")
    environ = {
        "USER": "heinrich",
        "HOSTNAME": "workhorse.example.org",
        "WANDB_API_KEY": "0123456789abcdef",
        "HF_TOKEN": "plainsecret",
        "MIOPEN_USER_DB_PATH": "/home/heinrich/miopen",
        "YOLO_AUTH_TOKEN": "yolosecret",
        "SHELL": "/bin/fish",
    }
    found = examine(tmp_path, RX5600XT)
    said = (
        "workhorse kernel: heinrich ran /home/heinrich/train.py --key 0123456789abcdef plainsecret yolosecret\n"
        "https://someone:pw@localhost/simple ghp_abcdefghijklmnopqrst12 someone@example.org\n"
        "C:\\Users\\Heinrich Z\\x /Users/other/y heinrichs MIOpen(HIP): Error"
    )
    text = bundle.report(dataclasses.replace(found, said=said), environ)
    for secret in (
        "heinrich/",
        "heinrich ",
        "workhorse",
        "0123456789",
        "secret ",
        "pw@",
        "ghp_a",
        "someone@",
        "other/",
    ):
        assert secret not in text, secret
    assert "yolosecret" not in text
    assert "fish" not in text
    for word in ("RX 5600 XT", "gfx1010", "MIOPEN_USER_DB_PATH: ~/miopen", "arch-not-in-torch", "MIOpen(HIP): Error"):
        assert word in text
    assert "heinrichs" in text  # another word


def test_short_or_common_names_are_no_names(monkeypatch):
    monkeypatch.setattr(bundle.getpass, "getuser", lambda: "root")
    monkeypatch.setattr(bundle.socket, "gethostname", lambda: "pc")
    assert bundle.redact("root pc localhost", {"USER": "io"}) == "root pc localhost"


def cli(*words, stdin: bytes | None = None, env=None):
    command = [sys.executable, "-m", "yolo_rocm", "doctor", *words]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120, env=env)


def test_a_log_is_read_from_a_file_and_from_stdin(tmp_path):
    log = b"epoch 1\nRuntimeError: miopenStatusUnknownError: stoul\n\xff\xfe rubbish\n"
    (tmp_path / "train.log").write_bytes(log)
    for done in (cli(str(tmp_path / "train.log")), cli("-", stdin=log)):
        text = done.stdout.decode()
        assert done.returncode == 1
        assert text.startswith("miopen-stoul, line 2: RuntimeError: miopenStatusUnknownError: stoul")
        for word in ("cause:", "remedy:", "https://github.com/ROCm/rocm-libraries/issues/4070", "Also in this log:"):
            assert word in text


def test_exit_codes_of_logs(tmp_path):
    (tmp_path / "fine.log").write_text("all is well\n")
    assert cli(str(tmp_path / "fine.log")).returncode == 0
    missing = cli(str(tmp_path / "missing.log"))
    assert missing.returncode == 2
    assert b"cannot read" in missing.stderr
    assert cli(str(tmp_path)).returncode == 2
    told = json.loads(cli("-", "--json", stdin=b"HSA_STATUS_ERROR_INVALID_ISA").stdout)
    assert [match["id"] for match in told["matches"]] == ["hsa-invalid-isa"]
    assert {"schema", "matches"} == set(told)


@pytest.fixture
def command(monkeypatch):
    """Return a function that runs the command in this process, with a stand-in for the probing process."""

    def run(*words: str, bad: tuple[str, ...] = ()):
        child = [sys.executable, "-c", CHILD.format(bad=bad, act=RAISES)]
        monkeypatch.setattr("yolo_rocm.diagnosis.doctor.child_command", lambda device: child)
        return CliRunner().invoke(app, ["doctor", "--device", "cpu", "--preset", "cpu", *words])

    return run


def test_the_verdict_stands_first(command, tmp_path):
    done = command("--bundle", str(tmp_path / "report.md"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Training on the CPU will work with preset cpu")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["conv", "gemm", "ok", "ok", "ok"] in rows
    assert "vendor library, convolution: fp32 healthy, fp16 healthy, bf16 healthy" in done.stdout
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# yolo-rocm")
    line = next(line for line in done.stdout.splitlines() if line.startswith("engine triton: "))
    assert line == f"engine triton: {in_words_unasked(torch.__version__)}"
    assert f"triton: {in_words_unasked(torch.__version__)}\n" in report


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


def test_no_probes(command):
    done = command("--no-probes")
    assert done.exit_code == 0
    assert "conv gemm" not in done.stdout


class Died(RuntimeError):
    """A death of its own class, to see that it arrives as it was."""


@pytest.mark.parametrize("way", ["register", "callbacks"])
def test_a_training_that_dies_offers_its_diagnosis(made_data, tmp_path, monkeypatch, way):
    from ultralytics import YOLO

    lines: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger("ultralytics"), "handlers", [Listening()])
    error = Died("HIP error: invalid device function")

    def die(trainer) -> None:
        raise error

    yolo = YOLO("yolov8n.yaml")
    if way == "register":
        yolo_rocm.register(yolo, preset="cpu")
    else:
        for event, function in yolo_rocm.callbacks(preset="cpu").items():
            yolo.add_callback(event, function)
    yolo.add_callback("on_train_start", die)
    options = {"epochs": 1, "imgsz": 32, "batch": 4, "plots": False, "device": "cpu", "workers": 0}
    with pytest.raises(Died) as caught:
        yolo.train(data=str(made_data()), project=str(tmp_path), name="run", **options)
    assert caught.value is error
    assert error.args == ("HIP error: invalid device function",)
    told = [line for line in lines if "hip-invalid-device-function" in line]
    assert len(told) == 1
    assert any("what to do: " in line and "whl-multi-arch" in line for line in lines)


def test_a_diagnosis_that_fails_does_not_hide_the_error(monkeypatch):
    from yolo_rocm import ultralytics_hooks as hooks
    from yolo_rocm.diagnosis import knowledge

    monkeypatch.setattr(knowledge, "explain", lambda error: 1 / 0)
    hooks.say_diagnosis(RuntimeError("anything"))
