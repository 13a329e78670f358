"""AMD cards through made sysfs trees: values, units, gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from yolo_rocm.telemetry.reading import Reading
from yolo_rocm.telemetry.sysfs import AmdSysfs

from ..fake_trees import MI300X, RADEON780M, RX5600XT, make_tree, write
from .sensors import add_sensors, find, pci, tree

pytestmark = pytest.mark.once

WHOLE = Reading(busy_percent=10, vram_used_mb=300, vram_total_mb=6 * 1024, temperature_c=41, power_w=101.5)


@pytest.fixture
def one(tmp_path):
    return tree(tmp_path, RX5600XT)


def test_what_an_integrated_gpu_borrows_counts_as_its_memory(tmp_path):
    root = tree(tmp_path, RADEON780M)
    reading = AmdSysfs(find(root), root).read()
    assert reading.vram_total_mb == pytest.approx((4 + 15.6) * 1024, abs=0.01)
    assert reading.vram_used_mb == 300 + 100


def test_newer_kernels_and_accelerators_name_their_sensors_otherwise(tmp_path):
    root = make_tree(tmp_path, MI300X)
    folder = add_sensors(root, 3, busy=99, used_mb=5, celsius=0, watts=750, power="power1_input")
    (folder / "hwmon/hwmon3/temp1_input").rename(folder / "hwmon/hwmon3/temp2_input")
    write(folder / "hwmon/hwmon3/temp2_input", "68000\n")
    reading = AmdSysfs(find(root), root).read()
    assert (reading.temperature_c, reading.power_w) == (68, 750)


FILES = {
    "gpu_busy_percent": "busy_percent",
    "mem_info_vram_used": "vram_used_mb",
    "mem_info_vram_total": "vram_total_mb",
    "hwmon/hwmon3/temp1_input": "temperature_c",
    "hwmon/hwmon3/power1_average": "power_w",
}


RUBBISH = ["", "N/A\n", "-77777777\n", b"\xff\x00\xfe", "9" * 40]


@pytest.mark.parametrize(
    ("name", "content"), [(name, None) for name in FILES] + [("gpu_busy_percent", content) for content in RUBBISH]
)
def test_a_file_that_is_rubbish_is_a_gap_and_the_others_stay(one, name, content):
    path = pci(one, 3) / name
    if content is None:  # readable to nobody: opening it fails, also for root
        path.unlink()
        path.mkdir()
    else:
        write(path, content)
    reading = AmdSysfs(find(one), one).read()
    assert reading == replace(WHOLE, **{FILES[name]: None})


def test_files_that_vanish_in_mid_run_and_come_back_elsewhere(one):
    source = AmdSysfs(find(one), one)
    kept = pci(one, 3).rename(one / "kept")
    assert source.read() == AmdSysfs(None, one).read() == Reading()
    kept.rename(pci(one, 3))
    (pci(one, 3) / "hwmon/hwmon3").rename(pci(one, 3) / "hwmon/hwmon9")  # bound anew: another number
    assert source.read() == WHOLE
