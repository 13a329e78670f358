"""GPUs from made trees: true targets, names, families, memory, order and what hides them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from yolo_rocm.hardware import Gpu, Machine, catalogue, detect, family_of, overridden_gfx
from yolo_rocm.hardware.catalogue import gfx_name, pci_ids, wave_of
from yolo_rocm.hardware.gpus import registry_adapters, windows_gpus

from .. import fake_trees as trees
from ..fake_trees import TREES, make_torch, make_tree
from ..tables import each_row

pytestmark = pytest.mark.once

# tree: name, gfx, family, memory of the card, wave, integrated
EXPECTED = {
    "rx5500xt": ("Radeon RX 5500 XT", "gfx1012", "rdna1", 8, 32, False),
    "rx5600xt": ("Radeon RX 5600 XT", "gfx1010", "rdna1", 6, 32, False),
    "rx5700xt": ("Radeon RX 5700 XT", "gfx1010", "rdna1", 8, 32, False),
    "rx6600": ("Radeon RX 6600", "gfx1032", "rdna2", 8, 32, False),
    "rx6700xt": ("Radeon RX 6700 XT", "gfx1031", "rdna2", 12, 32, False),
    "rx6900xt": ("Radeon RX 6900 XT", "gfx1030", "rdna2", 16, 32, False),
    "rx7600": ("Radeon RX 7600", "gfx1102", "rdna3", 8, 32, False),
    "rx7800xt": ("Radeon RX 7800 XT", "gfx1101", "rdna3", 16, 32, False),
    "rx7900xtx": ("Radeon RX 7900 XTX", "gfx1100", "rdna3", 24, 32, False),
    "rx9070xt": ("Radeon RX 9070 XT", "gfx1201", "rdna4", 15.9, 32, False),
    "vega64": ("Radeon RX Vega 56/64", "gfx900", "gcn", 8, 64, False),
    "mi50": ("Instinct MI50/MI60", "gfx906", "gcn", 16, 64, False),
    "mi100": ("Instinct MI100", "gfx908", "cdna1", 32, 64, False),
    "mi250": ("Instinct MI250/MI250X", "gfx90a", "cdna2", 64, 64, False),
    "mi300x": ("Instinct MI300X", "gfx942", "cdna3", 192, 64, False),
    "780m": ("Radeon 740M/760M/780M", "gfx1103", "rdna3", 4, 32, True),
    "strix-halo": ("Radeon 8060S", "gfx1151", "rdna3.5", 0.5, 32, True),
    "raphael-beside-rx7900xtx": ("Radeon RX 7900 XTX", "gfx1100", "rdna3", 24, 32, False),
}


PCI_IDS = Path(catalogue.__file__).with_name("pci_ids.csv")


def look(root: Path, site: Path, **environ: str) -> Machine:
    return detect(root, os_name="linux", torch_folder=make_torch(site), environ=environ)


@each_row("tree", EXPECTED)
def test_every_tree(tmp_path, tree):
    machine = look(make_tree(tmp_path / tree, *TREES[tree]), tmp_path / f"{tree} torch")
    gpu = machine.gpu
    found = (gpu.name, gpu.gfx, gpu.family, pytest.approx(gpu.vram_gb), gpu.wave, gpu.integrated)
    assert found == EXPECTED[tree]
    assert len(machine.gpus) == len(TREES[tree])
    assert [each.node for each in machine.gpus] == list(range(1, len(TREES[tree]) + 1))
    assert gpu.presents_as is None
    assert gpu.bus == f"0000:{2 + gpu.node:02x}:00.0"
    assert (gpu.card, gpu.render) == (f"card{gpu.node - 1}", f"renderD{127 + gpu.node}")


def test_an_override_changes_what_torch_reports_and_not_what_the_card_is(tmp_path):
    root = make_tree(tmp_path / "root", trees.RX5600XT)
    gpu = look(root, tmp_path, HSA_OVERRIDE_GFX_VERSION="10.3.0").gpu
    assert (gpu.gfx, gpu.presents_as, gpu.name) == ("gfx1010", "gfx1030", "Radeon RX 5600 XT")
    gpu = look(root, tmp_path, HSA_OVERRIDE_GFX_VERSION="10.3.0", HSA_OVERRIDE_GFX_VERSION_1="10.1.0").gpu
    assert gpu.presents_as == "gfx1010"  # the one of the node wins
    assert look(root, tmp_path, HSA_OVERRIDE_GFX_VERSION="gfx1030").gpu.presents_as is None


def test_an_integrated_gpu_beside_a_card_is_not_chosen_and_is_named(tmp_path):
    machine = look(make_tree(tmp_path / "root", trees.RAPHAEL, trees.RX7900XTX), tmp_path)
    assert [gpu.gfx for gpu in machine.visible] == ["gfx1036", "gfx1100"]  # torch's order
    assert machine.gpu.gfx == "gfx1100"
    assert [gpu.gfx for gpu in machine.clashing] == ["gfx1036"]
    assert machine.warnings == []  # its preset's environment hides it
    alone = look(make_tree(tmp_path / "alone", trees.RAPHAEL), tmp_path)
    assert alone.gpu.gfx == "gfx1036"
    assert alone.clashing == ()


BOTH = (trees.RX6900XT, trees.RX7900XTX, trees.RX5600XT)


@each_row(
    ("environ", "order"),
    [
        ({}, ["gfx1030", "gfx1100", "gfx1010"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["gfx1010", "gfx1030"]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["gfx1010"]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "2"}, ["gfx1030"]),
        ({"GPU_DEVICE_ORDINAL": "1"}, ["gfx1100"]),
        ({"CUDA_VISIBLE_DEVICES": "2", "GPU_DEVICE_ORDINAL": "1"}, ["gfx1010"]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, ["gfx1010"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-9a8b7c6d5e4f3021"}, ["gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, ["gfx1030"]),
        ({"HIP_VISIBLE_DEVICES": "2,2,0"}, ["gfx1010", "gfx1030"]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, ["gfx1030", "gfx1100", "gfx1010"]),
    ],
    ids=str,
)
def test_visible_devices(tmp_path, environ, order):
    folder = tmp_path / "-".join(["of", *environ, *environ.values()])
    machine = look(make_tree(folder / "root", *BOTH), folder, **environ)
    assert [gpu.gfx for gpu in machine.visible] == order
    assert len(machine.gpus) == 3
    if not order:
        assert "hides it" in machine.no_gpu_reason
        assert "doctor" in machine.warnings[0]


def test_nodes_in_the_order_of_their_numbers_with_a_target_of_their_own_or_by_the_device(tmp_path):
    """Kernels before 5.13 do not have the target; what tells neither it nor a device with processors is no GPU."""
    for node, target, device, simds in (
        (1, 0, 0, 8),
        (2, 90010, 0, 8),
        (3, 0, 0x731F, 0),
        (10, 90402, 0, 8),
        (11, 0, 0x731F, 8),
    ):
        trees.write_kfd_node(tmp_path, node, simd_count=simds, gfx_target_version=target, device_id=device)
    gpus = look(tmp_path, tmp_path / "site").gpus
    assert [(gpu.node, gpu.gfx) for gpu in gpus] == [(2, "gfx90a"), (10, "gfx942"), (11, "gfx1010")]


def test_a_card_without_compute_driver_is_found_and_not_used(tmp_path):
    machine = look(make_tree(tmp_path / "root", trees.RX5600XT, kfd=False), tmp_path)
    (gpu,) = machine.gpus
    assert (gpu.gfx, gpu.name, gpu.vram_gb, gpu.node) == ("gfx1010", "Radeon RX 5600 XT", 6, None)
    assert machine.gpu is None
    assert "KFD" in machine.no_gpu_reason


def test_a_card_without_an_entry_is_called_what_its_board_says(tmp_path):
    root = make_tree(tmp_path / "root", trees.MI300X, replace(trees.MI300X, device=0x7FFF))
    for bus in ("03", "04"):
        trees.write(root / f"sys/bus/pci/devices/0000:{bus}:00.0/product_name", "AMD Instinct MI999 OAM\n")
    assert [gpu.name for gpu in look(root, tmp_path).gpus] == ["Instinct MI300X", "AMD Instinct MI999 OAM"]


def test_memory_is_what_the_compute_driver_counts_as_the_cards_own(tmp_path):
    """Both kinds of its heaps, and neither the system's memory nor its LDS; PCI only where KFD tells nothing."""
    root = make_tree(tmp_path / "root", trees.RX5600XT)
    banks = root / "sys/class/kfd/kfd/topology/nodes/1/mem_banks"
    for number, (heap, size) in enumerate(((1, 2), (2, 3), (0, 32), (4, 64))):
        trees.write(banks / f"{number}/properties", f"heap_type {heap}\nsize_in_bytes {size * trees.GIB}\n")
    assert look(root, tmp_path).gpu.vram_gb == 5
    for number in (0, 1):
        trees.write(banks / f"{number}/properties", f"heap_type 0\nsize_in_bytes {trees.GIB}\n")
    assert look(root, tmp_path).gpu.vram_gb == 6  # as PCI has it


def test_unreadable_rubbish_is_no_gpu(tmp_path):
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties"
    trees.write(node, b"\xff\xfe gfx_target_version\nnot numbers at all\nsimd_count \xc2\xb2\n")
    trees.write(tmp_path / "sys/class/drm/card0/device/vendor", b"\x00\xff")
    (tmp_path / "sys/class/drm/cardX").mkdir(parents=True)
    trees.write(
        tmp_path / "sys/class/kfd/kfd/topology/nodes/odd/properties", "vendor_id 4318\nsimd_count 1\ndevice_id 1\n"
    )
    assert look(tmp_path, tmp_path / "site").gpus == ()


def test_nvidia(tmp_path):
    trees.write(tmp_path / "proc/driver/nvidia/version", "")
    assert [gpu.vendor for gpu in detect(tmp_path, os_name="linux").gpus] == ["nvidia"]
    trees.write(tmp_path / "proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")
    (gpu,) = detect(tmp_path, os_name="linux").gpus
    assert (gpu.name, str(gpu)) == ("H200", "NVIDIA H200")
    assert detect(tmp_path, os_name="macos").no_gpu_reason == "no GPU found"


ADAPTERS = [
    {"DriverDesc": "Microsoft Basic Display Adapter", "MatchingDeviceId": "root\\basicdisplay"},
    {"DriverDesc": "AMD Radeon(TM) Graphics", "MatchingDeviceId": "pci\\ven_1002&dev_164e"},
    {
        "DriverDesc": "AMD Radeon RX 9070 XT",
        "MatchingDeviceId": "PCI\\VEN_1002&DEV_7550&REV_C0",
        "HardwareInformation.qwMemorySize": (16 * 2**30).to_bytes(8, "little"),
        "DriverVersion": "32.0.21030.2001",
    },
    {"DriverDesc": "NVIDIA GeForce RTX 3060", "MatchingDeviceId": "PCI\\VEN_10DE&DEV_2503"},
    {},
]


def test_the_windows_registry(tmp_path):
    machine = detect(tmp_path, os_name="windows", torch_folder=make_torch(tmp_path), adapters=lambda: ADAPTERS)
    assert [gpu.vendor for gpu in machine.gpus] == ["amd", "nvidia", "amd"]
    gpu = machine.gpu
    assert (gpu.gfx, gpu.name, gpu.vram_gb, gpu.driver) == ("gfx1201", "Radeon RX 9070 XT", 16, "32.0.21030.2001")
    assert [each.gfx for each in machine.clashing] == ["gfx1036"]
    assert "HIP_VISIBLE_DEVICES" in machine.warnings[0]
    assert machine.overlays == ("windows",)


def test_the_registry_is_read_but_for_what_is_closed_to_users(monkeypatch):
    keys = {"0000": ADAPTERS[2], "Properties": None, "0001": ADAPTERS[1]}

    def open_key(parent, name):
        if name in keys and keys[name] is None:
            raise PermissionError(name)
        return nullcontext(name)

    registry = SimpleNamespace(
        HKEY_LOCAL_MACHINE="HKLM",
        OpenKey=open_key,
        QueryInfoKey=lambda name: (0, len(keys[name])) if name in keys else (len(keys), 0),
        EnumKey=lambda parent, index: list(keys)[index],
        EnumValue=lambda name, index: (*list(keys[name].items())[index], 1),
    )
    monkeypatch.setitem(sys.modules, "winreg", registry)
    assert list(registry_adapters()) == [ADAPTERS[2], ADAPTERS[1]]
    assert [gpu.gfx for gpu in windows_gpus()] == ["gfx1201", "gfx1036"]


@each_row(
    ("gpu", "words"),
    [
        (Gpu("amd", "gfx1010", 6.0, name="Radeon RX 5600 XT"), "AMD Radeon RX 5600 XT (gfx1010, 6 GB)"),
        (Gpu("amd", "gfx1010", 6.0), "AMD GPU gfx1010 (6 GB)"),
        (Gpu("amd"), "AMD GPU"),
        (Gpu("amd", "gfx1151", 0.5, name="Radeon 8060S", integrated=True), "AMD Radeon 8060S (gfx1151, integrated)"),
    ],
)
def test_descriptions(gpu, words):
    assert str(gpu) == words


TARGETS = {100100: "gfx1010", 100300: "gfx1030", 110001: "gfx1101", 120001: "gfx1201", 90010: "gfx90a", 90402: "gfx942"}


@each_row(("target", "name"), TARGETS.items())
def test_gfx_names(target, name):
    assert gfx_name(target) == name
    assert overridden_gfx(f"{target // 10000}.{target // 100 % 100}.{target % 100}") == name
    assert all(overridden_gfx(word) is None for word in (None, "10.3", "10.3.0.1", "10.3.x", "64.0.0", "10.3.0 "))


def test_every_target_of_the_table_has_a_family_and_no_device_two_targets():
    targets, names = pci_ids()
    assert len(targets) > 100
    assert len(names) > 130
    assert all(family_of(gfx) and wave_of(gfx) in (32, 64) for gfx in targets.values())
    assert {device for device, _ in names} - {0x1506} <= set(targets)
    rows = [line.split(",") for line in PCI_IDS.read_text().splitlines() if not line.startswith("#")][1:]
    assert {len(row) for row in rows} == {4}
    assert len({(device, revision) for device, revision, *_ in rows}) == len(rows)
    assert len({(device, gfx) for device, _, gfx, _ in rows}) == len({device for device, *_ in rows})
    assert (family_of(None), family_of("gfx1300"), wave_of("gfx1300")) == (None, None, None)
