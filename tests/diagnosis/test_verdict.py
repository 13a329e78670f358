"""What the examination comes to: whether training will work, and the one thing to do next."""

from __future__ import annotations

import dataclasses

import pytest

from yolo_rocm.diagnosis.doctor import probe_findings
from yolo_rocm.diagnosis.findings import Finding
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.diagnosis.probes import all_probes
from yolo_rocm.diagnosis.verdict import Setup, judge, way_out
from yolo_rocm.hardware import Gpu, Machine
from yolo_rocm.preset.schema import Preset

from ..tables import each_row

pytestmark = pytest.mark.once

NAMES = [probe.name for probe in all_probes()]
AUTO = Setup("auto", vendor_library=False, amp=True)
VENDOR = Setup("vendor", vendor_library=True, amp=True)


def probed(*bad: str, status="error") -> list[ProbeOutcome]:
    """Return outcomes of all probes; those whose names begin like one of `bad` have failed."""
    return [
        ProbeOutcome(n, status if n.startswith(bad) else "ok", "broken" if n.startswith(bad) else "") for n in NAMES
    ]


WAYS = {
    "all well": (AUTO, (), ()),
    "vendor sick, not used": (AUTO, ("conv/vendor", "norm/vendor"), ()),
    "fp16 bad everywhere": (AUTO, ("conv/auto/fp16", "conv/gemm/fp16", "conv/aten/fp16"), ("amp=False",)),
    "auto bad in fp16, gemm not": (AUTO, ("conv/auto/fp16",), ("amp=False",)),
    "auto bad": (AUTO, ("conv/auto",), ("rocm.conv.engine=gemm",)),
    "vendor sick, used": (VENDOR, ("conv/vendor",), ("rocm.conv.engine=auto", "rocm.conv.vendor=off")),
    "vendor's BatchNorm sick": (VENDOR, ("norm/vendor",), ("rocm.conv.engine=auto", "rocm.conv.vendor=off")),
    "vendor sick, auto steers": (Setup("auto", vendor_library=True, amp=True), ("norm/vendor", "conv/vendor"), ()),
    "nhwc bad": (dataclasses.replace(AUTO, channels_last=True), ("conv/auto/fp16/nhwc",), ("channels_last=False",)),
    "nhwc bad, not used": (AUTO, ("conv/auto/fp16/nhwc",), ()),
    "bf16 is not used": (AUTO, ("conv/auto/bf16", "norm/off/bf16"), ()),
    "triton errs: the run leaves it out": (AUTO, ("conv/triton",), ()),
    "triton bad, asked for": (Setup("triton", False, True), ("conv/triton",), ("rocm.conv.engine=auto",)),
    "triton bad beside gemm": (dataclasses.replace(AUTO, engine="gemm+triton"), ("conv/triton",), ()),
    "gemm bad beside triton": (Setup("gemm+triton", False, True), ("conv/gemm",), ("rocm.conv.engine=auto",)),
    "no matrix products": (AUTO, ("gemm/fp32",), None),
    "torch's own BatchNorm bad": (AUTO, ("norm/off",), None),
}


@each_row(("setup", "bad", "arguments"), WAYS.values(), ids=WAYS.keys())
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


ENGINE_VENDOR = {"conv": {"engine": "vendor", "vendor": "on"}}
SETUPS = {
    "as Ultralytics has it": (ENGINE_VENDOR, {}, "cuda", Setup("vendor", True, True, True)),
    "both layouts are measured": ({}, {}, "cuda", Setup("auto", False, True, True)),
    "the layout is set": ({"step": {"layout": "nchw"}}, {}, "cuda", Setup("auto", False, True, False)),
    "on a CPU": ({}, {}, "cpu", Setup("auto", False, False, False)),
    "on Windows": (ENGINE_VENDOR, {"system": "windows"}, "cuda", Setup("vendor", True, True, False)),
    "older Ultralytics": (ENGINE_VENDOR, {"ultralytics": "8.4.136"}, "cuda", Setup("vendor", True, True, False)),
    "as the preset has it": (
        {**ENGINE_VENDOR, "train": {"amp": False, "channels_last": False}}, {}, "cuda", Setup("vendor", True, False)
    ),
}  # fmt: skip


@each_row(("preset", "facts", "device", "setup"), SETUPS.values(), ids=SETUPS.keys())
def test_what_a_training_relies_on(preset, facts, device, setup):
    machine = Machine(facts.get("system", "linux"), torch="2.10.0", build="hip")
    vars(machine)["ultralytics"] = facts.get("ultralytics", "8.4.190")
    conv = {"engine": "auto", "vendor": "off", **preset.get("conv", {})}
    assert Setup.of(Preset(**{**preset, "conv": conv}), machine, device) == setup


AMD = Machine(gpus=(Gpu("amd", "gfx1100", 24, "RX 7900 XTX", node=1),), torch="2.10.0", build="hip")
WRONG_TORCH = Machine(gpus=AMD.gpus, torch="2.10.0", build="cpu")
NOTHING = Machine(torch="2.10.0", build="cpu")
ERROR = Finding("arch-not-in-torch", "error", "no kernels", "install others")
NO_TORCH = Finding("torch-missing", "error", "torch is not installed", "pip install torch")
NUMPY = Finding("numpy-too-new", "error", "built for NumPy 1", 'pip install "numpy<2"')
OPENCV = Finding("opencv-too-old", "error", "built for NumPy 1", "pip install -U opencv-python")
WARNING = Finding("shm-small", "warning", "small", "more")

SLOW = probed("conv/auto", "conv/gemm", "conv/aten", status="skipped")
VERDICTS = {
    "healthy": (AMD, [], probed(), "cuda", 0, True, "will work with preset p on AMD RX 7900 XTX", ""),
    "a warning is no problem": (AMD, [WARNING], probed(), "cuda", 0, True, "will work", ""),
    "an error of a check": (AMD, [ERROR], probed(), "cuda", 1, False, "at risk: no kernels", "install others"),
    "settings help": (AMD, [], probed("conv/auto"), "cuda", 1, True, "and rocm.conv.engine=gemm", "train preset=p"),
    "nothing helps": (AMD, [], probed("gemm"), "cuda", 1, False, "will not work", "--bundle"),
    "too slow": (AMD, [], SLOW, "cuda", 1, False, "too slowly", "again"),
    "not probed": (AMD, [], [], "cuda", 0, True, "the card itself was not probed", "--no-probes"),
    "no torch": (AMD, [ERROR, NO_TORCH], [], None, 2, False, "Nothing can be trained", "pip install torch"),
    "numpy does not fit": (AMD, [NUMPY, ERROR], [], "cuda", 2, False, "Nothing can be trained", '"numpy<2"'),
    "opencv does not fit": (NOTHING, [OPENCV], [], None, 2, False, "Nothing can be trained", "-U opencv-python"),
    "another torch": (WRONG_TORCH, [ERROR], [], None, 1, False, "would run on the CPU", "install others"),
    "no gpu": (NOTHING, [], [], None, 0, True, "on the CPU will work with preset p: no GPU found", ""),
}


@each_row(
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
