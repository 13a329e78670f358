"""`auto` over made machines: the preset chosen, its final values with their origins, the environment planned."""

from __future__ import annotations

import pytest

from yolo_rocm.hardware import Gpu, Machine, detect
from yolo_rocm.preset import variables
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.select import choose

from ..fake_trees import TREES, make_torch, make_tree, old_torch, write
from ..tables import each_row

pytestmark = pytest.mark.once

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (OVERRIDE, "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


# tree: preset, batch, memory the batch follows, amp, engine, vendor library
CHOSEN = {
    "rx5500xt": ("rx5500xt", 16, "8 GB, lean", False, "gemm+hip", "off"),
    "rx5600xt": ("rx5600xt", 16, "6 GB, lean", False, "gemm+hip", "off"),
    "rx5700xt": ("rx5700xt", 16, "8 GB, lean", False, "gemm+hip", "off"),
    "rx6600": ("rx6600", 16, "8 GB, lean", None, "auto", "off"),
    "rx6700xt": ("rx6700xt", 16, "12 GB", None, "auto", "off"),
    "rx6900xt": ("rx6900xt", 16, "16 GB", None, "auto", "off"),
    "rx7600": ("rx7600", 16, "8 GB, lean", False, "auto", "off"),
    "rx7800xt": ("rx7800xt", 16, "16 GB", None, "auto", "off"),
    "rx7900xtx": ("rx7900xtx", 32, "24 GB", None, "auto", "off"),
    "rx9070xt": ("rx9070xt", 16, "16 GB", None, "auto", "off"),
    "vega64": ("vega64", 16, "8 GB, lean", None, "auto", "off"),
    "mi50": ("mi50", 16, "16 GB", None, "auto", "off"),
    "mi100": ("mi100", 32, "32 GB", None, "auto", "on"),
    "mi250": ("mi250", 64, "64 GB", None, "auto", "on"),
    "mi300x": ("mi300x", 64, "192 GB", None, "auto", "on"),
    "780m": ("radeon780m", 16, "16 GB shared with the system, lean", None, "auto", "off"),
    "strix-halo": ("strixhalo", 32, "62 GB shared with the system", None, "auto", "off"),
    "raphael-beside-rx7900xtx": ("rx7900xtx", 32, "24 GB", None, "auto", "off"),
    "none": ("cpu", None, None, None, "vendor", "on"),
}


@pytest.mark.parametrize("tree", TREES)
def test_every_tree(tmp_path, tree):
    name, batch, memory, amp, engine, vendor = CHOSEN[tree]
    machine = detect(make_tree(tmp_path / "root", *TREES[tree]), os_name="linux", torch_folder=make_torch(tmp_path))
    settings = resolve("auto", machine=machine)
    values = {key: (value, origin) for key, value, origin in settings.rows()}
    assert settings.why.startswith(f"preset {name}: ")
    assert (values["conv.engine"][0], values["conv.vendor"][0]) == (engine, vendor)
    assert (settings.preset.train.get("batch"), settings.preset.train.get("amp")) == (batch, amp)
    if memory:
        assert values["train.batch"][1] == f"configs/family/amd.yaml (auto: {memory})"
    if batch:
        assert f"{machine.gpu}, linux, torch 2.10.0 with ROCm 7.0.51831" in settings.why
        assert values["step.layout"][1].startswith("configs/family/")


PYTORCH_ORG, MULTI_ARCH, OLD = "pytorch.org", "multi-arch", "torch 1.13.1+rocm5.2"
# tree, torch, what is decided for each variable
PLANNED = [
    ("rx5600xt", OLD, {OVERRIDE: ("10.3.0", "set")}),
    ("rx5600xt", PYTORCH_ORG, {OVERRIDE: ("10.3.0", "skip")}),
    ("rx6600", PYTORCH_ORG, {OVERRIDE: ("10.3.0", "set")}),
    ("rx6600", MULTI_ARCH, {OVERRIDE: ("10.3.0", "skip")}),
    ("rx6900xt", PYTORCH_ORG, {OVERRIDE: ("10.3.0", "skip")}),
    ("rx7600", PYTORCH_ORG, {OVERRIDE: ("11.0.0", "skip")}),
    ("rx7800xt", OLD, {OVERRIDE: ("11.0.0", "skip")}),  # has no gfx1100 kernels to run instead
    ("rx9070xt", PYTORCH_ORG, {"MIOPEN_DEBUG_CONV_WINOGRAD": ("0", "set")}),
    ("mi100", PYTORCH_ORG, {"TORCH_BLAS_PREFER_HIPBLASLT": ("0", "set")}),
    ("mi250", PYTORCH_ORG, {"MIOPEN_DEBUG_CONV_WINOGRAD": ("0", "set"), "HSA_NO_SCRATCH_RECLAIM": ("1", "skip")}),
    ("raphael-beside-rx7900xtx", PYTORCH_ORG, {"ROCR_VISIBLE_DEVICES": ("1", "set")}),
    ("none", PYTORCH_ORG, {}),
]


def torch_for(kind: str, site) -> object:
    if kind == OLD:
        return old_torch(site)
    return make_torch(site, archs=None if kind == PYTORCH_ORG else ["gfx1010", "gfx1012", "gfx1031", "gfx1032"])


@pytest.mark.parametrize(("tree", "kind", "expected"), PLANNED, ids=[f"{tree}, {kind}" for tree, kind, _ in PLANNED])
def test_the_environment_planned(tmp_path, tree, kind, expected):
    root = make_tree(tmp_path / "root", *TREES[tree])
    machine = detect(root, os_name="linux", torch_folder=torch_for(kind, tmp_path))
    decisions = variables.plan(resolve("auto", machine=machine).preset, machine)
    assert {d.name: (d.value, d.action) for d in decisions} == expected
    assert all(d.reason for d in decisions)


def test_windows(tmp_path):
    entry = {"DriverDesc": "AMD Radeon RX 5600 XT", "MatchingDeviceId": "PCI\\VEN_1002&DEV_731F&REV_CA"}
    folder = old_torch(tmp_path)
    machine = detect(tmp_path, os_name="windows", torch_folder=folder, adapters=lambda: [entry])
    settings = resolve("auto", machine=machine)
    assert settings.preset.name == "rx5600xt"
    assert settings.preset.loader.workers == 0
    (decision,) = variables.plan(settings.preset, machine)
    assert (decision.name, decision.action) == (OVERRIDE, "skip")
    assert "only on linux" in decision.reason


def test_wsl(tmp_path):
    root = make_tree(tmp_path / "root", wsl=True)
    write(root / "dev/dxg", "")
    settings = resolve("auto", machine=detect(root, os_name="linux", torch_folder=make_torch(tmp_path)))
    assert settings.preset.name == "generic"
    assert settings.preset.loader.pin_memory is False
    assert "batch" not in settings.preset.train  # memory is not known: Ultralytics' own default


def amd(gfx: str, vram: float | None, name: str | None = None) -> Machine:
    return Machine(gpus=(Gpu("amd", gfx, vram, name),), build="hip", torch="2.10.0")


@each_row(
    ("machine", "name"),
    [
        (amd("gfx1010", 8, "Radeon RX 5700"), "rx5700xt"),
        (amd("gfx1010", 6, "Radeon RX 5600M"), "rx5600xt"),
        (amd("gfx1010", 7.98), "rx5700xt"),
        (amd("gfx1030", 16, "Radeon RX 6800 XT"), "rx6800xt"),
        (amd("gfx906", 16, "Instinct MI50/MI60"), "mi50"),
        (amd("gfx906", 32, "Instinct MI50/MI60"), "mi60"),
        (amd("gfx1153", None), "krackan"),
        (amd("gfx803", 8), "generic"),
        (amd("gfx1010", None), None),
        (Machine(gpus=(Gpu("nvidia"),), build="cuda"), "nvidia"),
        (Machine(gpus=(Gpu("amd", "gfx1010", 6.0),), build="cuda"), "cpu"),
    ],
    ids=lambda value: str(value.gpu) if isinstance(value, Machine) else value,
)
def test_target_then_name_then_memory(machine, name):
    chosen = choose(machine).name
    assert chosen == name if name else chosen in ("rx5600xt", "rx5700xt")
