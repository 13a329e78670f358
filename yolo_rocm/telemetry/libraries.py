"""Cards through their makers' libraries: ROCm's `amdsmi`, and NVML through `pynvml`. Both only where installed."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable
from typing import Any

from .reading import MIB, Reading


def imported(name: str) -> Any:
    """Import a module that may be missing, broken or talkative; None where it cannot be had.

    A package named amdsmi on PyPI prints to stdout and raises KeyError where ROCm is missing. Called from the thread
    that starts a training: what is printed meanwhile by another would be lost.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception:
        return None


def _asked(call: Callable[[], Any]) -> Any:
    """Return what a call of a library gives; None where the card does not have it."""
    try:
        return call()
    except Exception:
        return None


def _number(value: Any) -> float | None:
    """Return a number; amdsmi says `N/A` where it has none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class AmdSmi:
    """ROCm's own library, found by the PCI address of the card.

    Args:
        module: `amdsmi`, or None where it is not installed.
        address: PCI address; None takes the only card of the machine.
    """

    name = "amdsmi"

    def __init__(self, module: Any, address: str | None) -> None:
        self._smi, self._address = module, address
        self._handle: Any = None

    def why_not(self) -> str | None:
        """Start the library and look for the card."""
        if self._smi is None:
            return "amdsmi cannot be imported"
        try:
            self._smi.amdsmi_init()
            handles = list(self._smi.amdsmi_get_processor_handles())
            addresses = [str(self._smi.amdsmi_get_gpu_device_bdf(handle)).lower() for handle in handles]
        except Exception as error:
            return f"amdsmi does not start: {type(error).__name__}: {error}"
        if self._address is None and len(handles) == 1:
            self._handle = handles[0]
        elif self._address is not None and self._address.lower() in addresses:
            self._handle = handles[addresses.index(self._address.lower())]
        else:
            return f"amdsmi lists no card at {self._address}, only {', '.join(addresses) or 'none'}"
        return None

    def read(self) -> Reading:
        """Ask for each value by itself: which of them a card has differs."""
        if self._handle is None:
            return Reading()
        smi, handle = self._smi, self._handle
        activity = _asked(lambda: smi.amdsmi_get_gpu_activity(handle)) or {}
        memory = _asked(lambda: smi.amdsmi_get_gpu_vram_usage(handle)) or {}  # in MB
        power = _asked(lambda: smi.amdsmi_get_power_info(handle)) or {}
        watts = (_number(power.get(key)) for key in ("current_socket_power", "average_socket_power", "socket_power"))
        return Reading(
            busy_percent=_number(activity.get("gfx_activity")),
            vram_used_mb=_number(memory.get("vram_used")),
            vram_total_mb=_number(memory.get("vram_total")),
            temperature_c=self._temperature(),
            power_w=next((value for value in watts if value), None),  # 0 stands for one it does not measure
        ).plausible()

    def _temperature(self) -> float | None:
        return next((found for found in map(self._temperature_at, ("EDGE", "HOTSPOT", "JUNCTION")) if found), None)

    def _temperature_at(self, place: str) -> float | None:
        smi = self._smi
        try:
            where, now = getattr(smi.AmdSmiTemperatureType, place), smi.AmdSmiTemperatureMetric.CURRENT
            return _number(smi.amdsmi_get_temp_metric(self._handle, where, now))
        except Exception:
            return None

    def close(self) -> None:
        """Forget the card. The library stays started: torch asks it too, and it has one state for the whole process."""
        self._handle = None


class Nvml:
    """NVIDIA's library, found by the PCI address of the card.

    Args:
        module: `pynvml`, or None where it is not installed.
        address: PCI address; None takes the only card of the machine.
    """

    name = "nvml"

    def __init__(self, module: Any, address: str | None) -> None:
        self._nvml, self._address = module, address
        self._handle: Any = None
        self._began = False

    def why_not(self) -> str | None:
        """Start the library and look for the card."""
        if self._nvml is None:
            return "pynvml cannot be imported"
        try:
            self._nvml.nvmlInit()
            self._began = True
            if self._address is not None:
                self._handle = self._nvml.nvmlDeviceGetHandleByPciBusId(self._address.encode())
            elif self._nvml.nvmlDeviceGetCount() == 1:
                self._handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
            else:
                return "there are several NVIDIA cards, and torch does not tell which one it computes on"
        except Exception as error:
            return f"NVML does not start: {type(error).__name__}: {error}"
        return None

    def read(self) -> Reading:
        """Ask for each value by itself: which of them a card has differs."""
        if self._handle is None:
            return Reading()
        nvml, handle = self._nvml, self._handle
        rates = _asked(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = _asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        used, total = (_number(getattr(memory, key, None)) for key in ("used", "total"))
        milliwatts = _number(_asked(lambda: nvml.nvmlDeviceGetPowerUsage(handle)))
        return Reading(
            busy_percent=_number(getattr(rates, "gpu", None)),
            vram_used_mb=None if used is None else used / MIB,
            vram_total_mb=None if total is None else total / MIB,
            temperature_c=_number(_asked(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            power_w=None if milliwatts is None else milliwatts / 1e3,
        ).plausible()

    def close(self) -> None:
        """Count this use of the library off: others of the process keep theirs."""
        self._handle = None
        if self._began:
            self._began = False
            _asked(self._nvml.nvmlShutdown)
