"""Checks of the state: each fires on a made machine that has its trouble, and not on one that lacks only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_trees import (
    RADEON780M,
    RAPHAEL,
    RX5600XT,
    RX6600,
    RX6900XT,
    RX7600,
    RX7900XTX,
    TREES,
    VEGA64,
    add_package,
    make_torch,
    make_tree,
    old_torch,
    write,
)
from yolo_rocm.diagnosis import checks
from yolo_rocm.diagnosis.checks import CHECKS, run_checks
from yolo_rocm.diagnosis.context import SETUP, Context
from yolo_rocm.hardware import detect
from yolo_rocm.preset.schema import Preset

pytestmark = pytest.mark.once

VENDOR = {"conv": {"engine": "auto", "vendor": "on"}}
LEFT_ALONE = {"conv": {"engine": "vendor", "vendor": "on"}}


HEALTHY = {"preset": {"train": {"channels_last": False}}}


def admit(
    folder: Path,
    *cards,
    environ=None,
    preset=None,
    torch=make_torch,
    torchvision: str | None = "+rocm7.0",
    os_name="linux",
    facts=None,
    home="/home/user",
    tree=None,
    prepare=None,
    lacks=None,
    opencv_error="",
    packages=(),
    **torch_facts,
) -> Context:
    """Return the patient for these cards, made in a folder; what is not said is healthy."""
    root, site = folder / "root", folder / "site"
    make_tree(root, *cards, **(tree or {}))
    for number in range(len(cards)):
        write(root / f"dev/dri/renderD{128 + number}", "")
    torch_folder = torch(site, **torch_facts) if torch else site / "no-torch"
    if torchvision is not None:
        write(site / "torchvision/version.py", f"__version__ = '0.25.0{torchvision}'\n")
    for package in packages:
        add_package(site, *package)
    if prepare:
        prepare(root)
    environ = environ or {}
    adapters = [{"MatchingDeviceId": "PCI\\VEN_1002&DEV_731F", "DriverDesc": "AMD Radeon RX 5600 XT"}]
    machine = detect(
        root, os_name=os_name, torch_folder=torch_folder, environ=environ, adapters=lambda: adapters if cards else []
    )
    vars(machine).update({"ultralytics": "8.4.190", "python": "3.11.7", "cores": 8, **(facts or {})})
    return Context(machine, Preset(**(preset or {})), environ, Path(home), lacks or {}, opencv_error)


def found(folder: Path, cards=(RX7900XTX,), **case) -> set[str]:
    return {finding.id for finding in run_checks(admit(folder, *cards, **{**HEALTHY, **case}))}


def nfs(root: Path) -> None:
    mounts = "tmpfs /dev/shm tmpfs rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/sda1 /home/local ext4 rw 0 0\n"
    write(root / "proc/mounts", mounts)


def small_shm(root: Path) -> None:
    write(root / "proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n")


def dxg(root: Path) -> None:
    write(root / "dev/dxg", "")


def old_hsa(root: Path) -> None:
    dxg(root)
    write(root / "var/lib/dpkg/info/libhsa-runtime64-1:amd64.list", "/usr/lib\n")


def without_gfx900(root: Path) -> None:
    for file in (root.parent / "site/torch/lib/rocblas/library").glob("*gfx900*"):
        file.unlink()


def environ(*more: dict, **variables: str) -> dict:
    return {"environ": variables, **dict(pair for each in more for pair in each.items())}


def under(override: str, *cards, **more) -> dict:
    return {"cards": cards or (RX7900XTX,), "environ": {"HSA_OVERRIDE_GFX_VERSION": override}, **more}


def installed(*packages: tuple[str, ...], **more) -> dict:
    return {"packages": packages, **more}


def ultralytics(version: str | None, **more) -> dict:
    return {"facts": {"ultralytics": version}, **more}


WSL = {"tree": {"wsl": True}, "cards": ()}
NO_LIBRARY = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
TILES = "MIOPEN_DEBUG_CONV_DIRECT_ASM_1X1U_PERF_VALS"
WITHOUT_AMP = {"train": {"amp": False, "channels_last": False}}
# id of the finding: (what has it, what differs in that point only and has not)
CASES = {
    "numpy-too-new": (
        installed(("numpy", "2.2.6"), torch=old_torch),
        installed(("numpy", "1.26.4"), torch=old_torch),
    ),
    "opencv-too-old": (
        installed(("numpy", "2.2.6"), ("opencv-python", "4.9.0.80")),
        installed(("numpy", "2.2.6"), ("opencv-python", "4.10.0.84")),
    ),
    "opencv-without-its-libraries": (
        {"opencv_error": NO_LIBRARY},
        {"opencv_error": "ModuleNotFoundError: No module named 'cv2'"},
    ),
    "torchvision-for-another-torch": (
        installed(("torchvision", "0.24.1", "torch (==2.9.1)")),
        installed(("torchvision", "0.25.1", "torch (==2.10.1)")),
    ),
    "torch-missing": ({"torch": None}, {}),
    "ultralytics-missing": (ultralytics(None), {}),
    "ultralytics-too-old": (ultralytics("8.2.103"), ultralytics("8.3.0")),
    "ultralytics-lacks": ({"lacks": {"training": ["a name is not there"]}}, {"lacks": {"other": ["a name"]}}),
    "ultralytics-untested": (ultralytics("99.0.0"), ultralytics("99.0.0", lacks={"training": ["refused anyway"]})),
    "ultralytics-leaves-off": ({"lacks": {"damaged images": ["a name"]}}, {"lacks": {"training": ["a name"]}}),
    "torch-wrong-build": ({"hip": None}, {}),
    "torchvision-mismatch": ({"torchvision": "+cpu"}, {"torchvision": "+rocm7.0"}),
    "arch-not-in-torch": ({"cards": (RX6600,)}, {"cards": (RX6900XT,)}),
    "rocblas-kernels-missing": ({"cards": (VEGA64,), "prepare": without_gfx900}, {"cards": (VEGA64,)}),
    "channels-last-auto": ({"preset": LEFT_ALONE}, ultralytics("8.4.136", preset=LEFT_ALONE)),
    "benchmark-default": ({"preset": VENDOR, "version": "2.6.0"}, {"preset": VENDOR, "version": "2.7.0"}),
    "gpu-hidden": (environ(HIP_VISIBLE_DEVICES="7"), environ(HIP_VISIBLE_DEVICES="0")),
    "no-compute-driver": ({"tree": {"kfd": False}}, {}),
    "device-permissions": ({"prepare": lambda root: (root / "dev/dri/renderD128").unlink()}, {}),
    "mixed-gpus": (
        {"cards": (RAPHAEL, RX7900XTX)},
        environ({"cards": (RAPHAEL, RX7900XTX)}, HIP_VISIBLE_DEVICES="1"),
    ),
    "wsl-without-gpu": (WSL, {**WSL, "prepare": dxg}),
    "wsl-old-hsa": ({**WSL, "prepare": old_hsa}, {**WSL, "prepare": dxg}),
    "home-on-network": ({"prepare": nfs}, {"prepare": nfs, "home": "/home/local/user"}),
    "shm-small": ({"prepare": small_shm}, {"prepare": small_shm, "preset": {"loader": {"workers": 0}}}),
    "override-on-windows": (under("10.3.0", os_name="windows"), {"os_name": "windows"}),
    "override-malformed": (under("gfx1100"), under("11.0.0")),
    "override-rdna1": (under("10.3.0", RX5600XT), under("10.3.0", RX5600XT, torch=old_torch)),
    "override-other-family": (under("10.3.0"), under("11.0.1")),
    "override-hides-native": (under("11.0.0", RX7600), under("10.3.0", RX6600)),
    "override-fp16-overrun": (under("11.0.0", RADEON780M), under("11.0.0", RADEON780M, preset=WITHOUT_AMP)),
    "miopen-find-enforce": (environ(MIOPEN_FIND_ENFORCE="4"), environ(MIOPEN_FIND_ENFORCE="1")),
    "miopen-perf-vals": (environ(**{TILES: "1"}), environ(**{TILES: "1,16,1,64,2,2,1,4"})),
    "expandable-segments": (
        environ(PYTORCH_HIP_ALLOC_CONF="max_split_size_mb:128, expandable_segments: True"),
        environ(PYTORCH_HIP_ALLOC_CONF="expandable_segments:False"),
    ),
    "two-device-filters": (
        environ(ROCR_VISIBLE_DEVICES="0", HIP_VISIBLE_DEVICES="0"),
        environ(ROCR_VISIBLE_DEVICES="0"),
    ),
    "hip-visible-with-old-ultralytics": (
        environ(ultralytics("8.4.60"), HIP_VISIBLE_DEVICES="0"),
        environ(ultralytics("8.4.61"), HIP_VISIBLE_DEVICES="0"),
    ),
}


@pytest.mark.parametrize(("id", "sick", "well"), [(id, *cases) for id, cases in CASES.items()], ids=CASES.keys())
def test_fires_where_it_should_and_only_there(tmp_path, id, sick, well):
    assert id in found(tmp_path / "sick", **sick)
    assert id not in found(tmp_path / "well", **well)


@pytest.mark.parametrize("tree", TREES)
def test_every_tree_can_be_examined(tmp_path, tree):
    """Nothing fails, every error has a remedy, and a card whose kernels the wheel lacks is told the right wheel."""
    patient = admit(tmp_path, *TREES[tree])
    findings = run_checks(patient)
    assert "check-failed" not in {finding.id for finding in findings}
    assert all(finding.remedy for finding in findings)
    assert all(source.startswith("https://") for finding in findings for source in finding.sources)
    gpu = patient.gpu
    if gpu is not None and gpu.gfx not in patient.machine.archs:
        told = SETUP if gpu.family == "rdna1" else f"device-{gpu.gfx}"
        assert any(told in f.remedy for f in findings if f.id == "arch-not-in-torch")


def test_a_check_that_fails_takes_no_other_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", (lambda patient: {}["surprise"], *CHECKS))
    findings = run_checks(admit(tmp_path, RX5600XT))
    assert {"check-failed", "arch-not-in-torch"} <= {finding.id for finding in findings}
    assert any("surprise" in finding.finding for finding in findings)


def test_nothing_is_found_on_a_healthy_machine(tmp_path):
    assert {check.__name__.replace("_", "-") for check in CHECKS} == set(CASES)  # all of them have looked
    assert found(tmp_path) == set()
    assert "miopen-perf-vals" not in found(tmp_path / "cpu", **environ({"hip": None}, **{TILES: "1"}))  # no GPU asks it


def test_the_published_settings_of_an_rx_5600_xt_are_fine(tmp_path):
    """Under the override, torch 1.13.1+rocm5.2 has no kernels for gfx1010, and works all the same."""
    settings = {"conv": {"engine": "gemm"}, **WITHOUT_AMP}
    case = under("10.3.0", RX5600XT, torch=old_torch, torchvision="+rocm5.2", preset=settings)
    assert found(tmp_path, **case) == set()


@pytest.mark.parametrize("card", [RX5600XT, RX7900XTX], ids=["5600", "7900"])
@pytest.mark.parametrize(("torch", "id"), [(None, "torch-missing"), (make_torch, "torch-wrong-build")])
def test_a_card_whose_torch_needs_an_environment_of_its_own_is_sent_to_setup(tmp_path, card, torch, id):
    """Another Python, pins and two indexes: that is no single line of pip."""
    facts = {} if torch is None else {"hip": None}
    findings = run_checks(admit(tmp_path, card, torch=torch, torchvision=None, **facts))
    (remedy,) = [finding.remedy for finding in findings if finding.id == id]
    index = "pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/ "
    assert remedy.startswith(index) if card is RX7900XTX else remedy == SETUP


def test_groups_are_named_where_a_device_is_closed(tmp_path):
    patient = admit(tmp_path, RX7900XTX, tree={"container": True})
    closed = [type(n)(n.path, 0o660, 0, "render", False) for n in patient.machine.devices]
    vars(patient.machine).update(devices=tuple(closed), groups=("users",))
    (finding,) = [f for f in run_checks(patient) if f.id == "device-permissions"]
    assert "/dev/kfd belongs to group render and cannot be opened; groups here: users" in finding.finding
    assert "--group-add" in finding.remedy


def test_packages_that_do_not_fit_come_first_and_have_the_command(tmp_path):
    """What pip makes of the RX 5000's stack when a second command asks for Ultralytics alone."""
    packages = [
        ("numpy", "2.2.6"),
        ("opencv-python", "5.0.0.93", 'numpy<2.0; python_version < "3.9"', 'numpy>=2; python_version >= "3.9"'),
        ("torchvision", "0.15.2", "torch (==2.0.1)"),
    ]
    (first, second, *_) = run_checks(admit(tmp_path, RX5600XT, torch=old_torch, packages=packages))
    assert first.finding.startswith("torch 1.13.1 was built for NumPy 1 and cannot use the installed NumPy 2.2.6")
    assert first.remedy == 'pip install "numpy<2" "opencv-python<4.12"'
    assert second.finding.startswith("torchvision 0.15.2 was built for torch 2.0.1, and torch 1.13.1 is installed")
    assert second.remedy == SETUP


@pytest.mark.parametrize(
    ("card", "case", "id"),
    [(RAPHAEL, {"hip": None}, "torch-wrong-build"), (RX7900XTX, {"torchvision": "+rocm6.4"}, "torchvision-mismatch")],
    ids=["an integrated GPU beside a CPU torch", "torchvision of another ROCm"],
)
def test_what_may_be_as_it_should_is_a_warning(tmp_path, card, case, id):
    assert {f.id: f.severity for f in run_checks(admit(tmp_path, card, **HEALTHY, **case))} == {id: "warning"}
