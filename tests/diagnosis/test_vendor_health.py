"""What probes learn is kept per card and stack, and steers `auto`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import torch

import yolo_rocm
from tests.fake_trees import RX5600XT, RX7900XTX, make_torch, make_tree
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.diagnosis.outcome import ProbeOutcome
from yolo_rocm.diagnosis.vendor_health import Health, advise, memory_file, recall, remember
from yolo_rocm.hardware import detect
from yolo_rocm.preset.schema import Conv
from yolo_rocm.session.run import Run
from yolo_rocm.session.session import Session

from ..tables import each_row

SICK = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.sick_vendor import sick_vendor
from yolo_rocm.diagnosis.probe_child import main
with sick_vendor():
    main(["--device", "cpu", *sys.argv[-2:]])
"""
ALL = {"fp32": True, "fp16": True, "bf16": True}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def said(events):
    return events.lines


def test_probes_are_summed_up_by_dtype():
    outcomes = [
        ProbeOutcome("conv/vendor/fp32/nchw/1x1", "ok"),
        ProbeOutcome("conv/vendor/fp32/nhwc/3x3", "ok"),
        ProbeOutcome("conv/vendor/fp16/nchw/1x1", "ok"),
        ProbeOutcome("conv/vendor/fp16/nchw/3x3", "error"),
        ProbeOutcome("conv/vendor/bf16/nchw/3x3", "skipped"),
        ProbeOutcome("conv/gemm/bf16/nchw/3x3", "error"),
        ProbeOutcome("norm/vendor/fp32/nchw", "wrong"),
        ProbeOutcome("gemm/fp32", "error"),
    ]
    health = Health.of(outcomes)
    assert health.conv == {"fp32": True, "fp16": False}
    assert health.norm == {"fp32": False}
    assert health.known
    assert not Health.of(outcomes[-1:]).known


def test_what_was_skipped_after_deaths_is_unhealthy():
    died = [ProbeOutcome("conv/vendor/fp32/nchw/1x1", "segfault"), ProbeOutcome("conv/vendor/fp16/nchw/1x1", "skipped")]
    assert Health.of(died).conv == {"fp32": False, "fp16": False}
    in_time = [ProbeOutcome("conv/vendor/fp32/nchw/1x1", "wrong"), ProbeOutcome("conv/vendor/fp16/nchw/1x1", "skipped")]
    assert Health.of(in_time).conv == {"fp32": False}


@each_row("content", ["", "[]", "{", "{}", '{"conv": 3, "norm": 4, "when": "x"}', "\x00\xff"])
def test_a_broken_memory_is_no_memory(folder, content, caplog):
    folder.mkdir(exist_ok=True)
    caplog.clear()
    (folder / "health-x.json").write_text(content, encoding="latin-1")
    with caplog.at_level(logging.WARNING):
        assert recall(folder / "health-x.json") is None
    assert "run `yolo-rocm doctor` again" in caplog.text


def test_each_card_and_stack_has_its_own_memory(tmp_path):
    def name(card, version="2.10.0", hip="7.0.1", **environ):
        root = tmp_path / f"{card.device}-{card.revision}"
        if not root.exists():
            make_tree(root, card)
        machine = detect(root, os_name="linux", torch_folder=make_torch(tmp_path / "site", version, hip), environ={})
        return memory_file(machine, "cuda", environ).name

    names = [
        name(RX7900XTX),
        name(RX5600XT),
        name(RX5600XT, HSA_OVERRIDE_GFX_VERSION="10.3.0"),
        name(RX5600XT, version="2.11.0"),
        name(RX5600XT, hip="7.2.0"),
    ]
    assert len(set(names)) == len(names)
    assert name(RX5600XT) == names[1]
    assert "gfx1010" in names[1]
    assert not set(names[1]) & set('/\\:*?"<>| ')


SICK_FP16 = {"fp32": True, "fp16": False, "bf16": True}
CASES = {
    # conv section, conv health, norm health, explicit -> vendor, avoids, part of the line
    "nothing known": (("auto", "on"), {}, {}, False, True, (), None),
    "all well": (("auto", "on"), ALL, ALL, False, True, (), None),
    "conv sick in fp16": (("auto", "on"), SICK_FP16, ALL, False, True, ("fp16",), "convolution in fp16: auto does"),
    "norm sick": (("auto", "on"), ALL, SICK_FP16, False, False, (), "BatchNorm in fp16: it is off for this run"),
    "norm sick in bf16 only": (("auto", "on"), ALL, {**ALL, "bf16": False}, False, True, (), None),
    "engine vendor": (("vendor", "on"), SICK_FP16, ALL, False, True, (), "rocm.conv.engine=auto avoids it"),
    "engine gemm, norm sick": (("gemm", "on"), ALL, SICK_FP16, False, True, (), "rocm.conv.vendor=off avoids it"),
    "engine gemm, conv sick": (("gemm", "on"), SICK_FP16, ALL, False, True, (), None),
    "off by preset, proven": (("auto", "off"), {**ALL, "bf16": False}, ALL, False, True, ("bf16",), "auto may use it"),
    "off by preset, fp16 unknown": (("auto", "off"), {"fp32": True}, ALL, False, False, (), None),
    "off by preset, norm sick": (("auto", "off"), ALL, SICK_FP16, False, False, (), None),
    "off by the user, proven": (("auto", "off"), ALL, ALL, True, False, (), None),
    "off, engine gemm": (("gemm", "off"), ALL, ALL, False, False, (), None),
}


@each_row(("section", "conv", "norm", "explicit", "vendor", "avoids", "line"), CASES.values(), ids=CASES.keys())
def test_advice(section, conv, norm, explicit, vendor, avoids, line):
    health = Health(conv, norm, "2026-11-15", path=Path("cache/health-x.json"))
    advice = advise(Conv(engine=section[0], vendor=section[1]), health, explicit)
    assert (advice.vendor_library, advice.conv_avoids) == (vendor, avoids)
    if line is None:
        assert advice.lines == ()
    else:
        (told,) = advice.lines
        assert line in told
        assert "2026-11-15, cache/health-x.json" in told.replace("\\", "/")


def problem(dtype):
    return ConvProblem((2, 8, 16, 16), (8, 8, 3, 3), (1, 1), (1, 1), (1, 1), (0, 0), 1, False, dtype, "cpu", False)


def on_cpu(vendor: str = "on") -> Session:
    return Session("cpu", {"conv": {"engine": "auto", "devices": ["cpu"], "vendor": vendor}})


def convolve() -> torch.Tensor:
    x, weight = torch.randn(1, 8, 16, 16, requires_grad=True), torch.randn(8, 8, 3, 3, requires_grad=True)
    y = torch.nn.functional.conv2d(x, weight, padding=1)
    y.sum().backward()
    return y


@pytest.mark.parametrize(
    ("health", "rocm", "on"),
    [
        (None, None, False),
        (Health(ALL, ALL, "2026-11-15"), None, True),
        (Health(ALL, ALL, "2026-11-15"), {"conv": {"vendor": "off"}}, False),
    ],
    ids=["nothing known", "proven", "the user's word"],
)
def test_a_preset_that_trusts_nothing_trusts_what_was_proven(said, health, rocm, on):
    session = Session("generic", rocm)
    if health is not None:
        remember(health, memory_file(session.machine, "cuda"))
    with Run(session, {}).applied():
        assert torch._C._get_cudnn_enabled() == on
        planner = session.convolutions._patch.planner
        assert ("vendor" in [a.engine for a in planner.candidates(problem(torch.float32))]) == on
    assert torch._C._get_cudnn_enabled()
    assert any("passed its probes" in line for line in said) == on


def test_what_the_doctor_finds_is_what_the_next_run_does(sick, said, folder):
    found = yolo_rocm.doctor("cpu", device="cpu", command=[sys.executable, "-c", SICK])
    for outcome in found.outcomes:
        if outcome.name.startswith(("conv/gemm/", "conv/auto/")):
            assert outcome.status == "ok"
        elif outcome.name.startswith(("conv/triton/", "conv/hip/")):
            assert outcome.status == "skipped"
        elif outcome.name.startswith("conv/"):
            assert (outcome.status, outcome.message) == ("error", "RuntimeError: miopenStatusUnknownError")
        elif outcome.name not in ("device", "pinned") and "fp32" in outcome.name:
            assert 0 < outcome.error < 1e-5  # a comparison with itself would give 0
    assert "pinned" not in {outcome.name for outcome in found.outcomes}  # asks a GPU
    assert not any(found.health.conv.values())
    assert found.health.norm["fp32"]
    (kept,) = folder.glob("health-cpu-*.json")
    assert recall(kept) == found.health
    session = on_cpu()
    with Run(session, {}).applied():
        convolve()
        assert [served.plan.engine for served in session.report.served.values()] == ["gemm"]
    assert any("failed its probes of convolution in fp32" in line for line in said)
    assert "rocm.conv.engine=auto" in found.verdict.next or "rocm.conv.engine=gemm" in found.verdict.next
    assert (found.verdict.works, found.verdict.code) == (True, 1)
