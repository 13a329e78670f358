"""amdsmi and NVML, by modules that answer as the real ones do, raise as they do, and print."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from yolo_rocm.telemetry.libraries import AmdSmi, Nvml, imported
from yolo_rocm.telemetry.reading import Reading

from ..tables import each_row

pytestmark = pytest.mark.once

FULL = Reading(busy_percent=97, vram_used_mb=2048, vram_total_mb=6128, temperature_c=71, power_w=148)


class Refused(Exception):
    """What both libraries raise for a value a card does not have."""


def refuse(*_):
    raise Refused("not supported")


def amdsmi(**changes):
    """Return a module in the shape of ROCm 6's amdsmi."""
    addresses = ["0000:03:00.0", "0000:0C:00.0"]
    parts = {
        "amdsmi_init": lambda: None,
        "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: [0, 1],
        "amdsmi_get_gpu_device_bdf": lambda handle: addresses[handle],
        "amdsmi_get_gpu_activity": lambda handle: {
            "gfx_activity": 96 + handle,
            "umc_activity": 1,
            "mm_activity": "N/A",
        },
        "amdsmi_get_gpu_vram_usage": lambda handle: {"vram_total": 6128, "vram_used": 2048},
        "amdsmi_get_power_info": lambda handle: {"current_socket_power": "N/A", "average_socket_power": 148},
        "amdsmi_get_temp_metric": lambda handle, place, metric: {"edge": 71, "hotspot": 90}[place],
        "AmdSmiTemperatureType": SimpleNamespace(EDGE="edge", HOTSPOT="hotspot"),
        "AmdSmiTemperatureMetric": SimpleNamespace(CURRENT="now"),
    }
    return SimpleNamespace(**{**parts, **changes})


def nvml(**changes):
    """Return a module in the shape of nvidia-ml-py."""
    parts = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"card {index}",
        "nvmlDeviceGetHandleByPciBusId": lambda address: {b"0000:65:00.0": "card 1"}[address],
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=20),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=2048 * 2**20, total=6128 * 2**20),
        "nvmlDeviceGetTemperature": lambda handle, sensor: 71,
        "nvmlDeviceGetPowerUsage": lambda handle: 148000,
    }
    return SimpleNamespace(**{**parts, **changes})


def opened(source):
    assert source.why_not() is None
    return source


def test_amdsmi_finds_the_card_by_address():
    assert opened(AmdSmi(amdsmi(), "0000:0c:00.0")).read() == FULL
    assert opened(AmdSmi(amdsmi(), "0000:03:00.0")).read().busy_percent == 96


def test_nvml_finds_the_card_by_address():
    assert opened(Nvml(nvml(), "0000:65:00.0")).read() == FULL


def test_without_an_address_only_the_only_card_is_taken():
    assert "several" in Nvml(nvml(), None).why_not()
    assert opened(Nvml(nvml(nvmlDeviceGetCount=lambda: 1), None)).read() == FULL
    assert "no card at None" in AmdSmi(amdsmi(), None).why_not()
    assert opened(AmdSmi(amdsmi(amdsmi_get_processor_handles=lambda: [1]), None)).read() == FULL


@pytest.mark.parametrize(
    ("name", "gaps"),
    [
        ("amdsmi_get_gpu_activity", {"busy_percent"}),
        ("amdsmi_get_gpu_vram_usage", {"vram_used_mb", "vram_total_mb"}),
        ("amdsmi_get_power_info", {"power_w"}),
        ("amdsmi_get_temp_metric", {"temperature_c"}),
    ],
)
@pytest.mark.parametrize("answer", [refuse, lambda *_: {}, lambda *_: None, None])  # None: a version without it
def test_what_amdsmi_does_not_have_is_a_gap(name, gaps, answer):
    smi = amdsmi(**{name: answer})
    if answer is None:
        delattr(smi, name)
    reading = opened(AmdSmi(smi, "0000:0c:00.0")).read()
    assert reading.missing == gaps | FULL.missing


@pytest.mark.parametrize(
    ("name", "gaps"),
    [
        ("nvmlDeviceGetUtilizationRates", {"busy_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"vram_used_mb", "vram_total_mb"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
    ],
)
def test_what_nvml_does_not_have_is_a_gap(name, gaps):
    reading = opened(Nvml(nvml(**{name: refuse}), "0000:65:00.0")).read()
    assert reading.missing == gaps | FULL.missing


def test_the_hottest_place_stands_in_for_the_edge():
    def hot(handle, place, metric):
        return 88 if place == "hotspot" else refuse()

    assert opened(AmdSmi(amdsmi(amdsmi_get_temp_metric=hot), "0000:0c:00.0")).read().temperature_c == 88


@each_row(
    ("source", "why"),
    [
        (AmdSmi(None, None), "cannot be imported"),
        (Nvml(None, None), "cannot be imported"),
        (AmdSmi(amdsmi(amdsmi_init=refuse), None), "does not start: Refused"),
        (Nvml(nvml(nvmlInit=refuse), None), "does not start: Refused"),
        (Nvml(nvml(), "0000:01:00.0"), "does not start: KeyError"),
        (AmdSmi(amdsmi(), "0000:99:00.0"), "lists no card at 0000:99:00.0"),
    ],
)
def test_a_library_that_cannot_help_says_why_and_reads_nothing(source, why):
    assert why in source.why_not()
    assert source.read() == Reading()
    source.close()


def test_nvml_is_counted_off_once_and_amdsmi_left_to_torch():
    ended = []
    source = opened(AmdSmi(amdsmi(amdsmi_shut_down=lambda: ended.append("amd")), "0000:0c:00.0"))
    other = opened(Nvml(nvml(nvmlShutdown=lambda: ended.append("nvidia")), "0000:65:00.0"))
    for each in (source, other, other, Nvml(nvml(nvmlShutdown=lambda: ended.append("never started")), None)):
        each.close()
    assert ended == ["nvidia"]
    assert source.read() == other.read() == Reading()


def test_a_module_that_prints_and_raises_on_import_is_none(tmp_path, monkeypatch, capsys):
    """As the amdsmi of PyPI does without ROCm."""
    text = "print('Unable to find libamd_smi.so')\nimport warnings\nwarnings.warn('old')\nraise KeyError('ROCM_HOME')\n"
    (tmp_path / "made_amdsmi.py").write_text(text)
    (tmp_path / "made_good.py").write_text("print('hello')\nvalue = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert imported("made_amdsmi") is None
    assert imported("there_is_no_such_module") is None
    assert imported("made_good").value == 7
    assert capsys.readouterr().out == ""
    del sys.modules["made_good"]
