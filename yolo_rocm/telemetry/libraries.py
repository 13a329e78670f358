"""Cards through their makers' libraries: ROCm's `amdsmi`, and NVML through `pynvml`. Both only where installed."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from typing import Any, Final

from .reading import MIB, Reading, Source

_NVML_TEMPERATURE_GPU: Final = 0  # the one sensor that NVML knows


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


def _tried(module: Any, name: str, *arguments: Any) -> Any:
    """Return what a function of a library gives; None where the card or this version does not have it."""
    try:
        return getattr(module, name)(*arguments)
    except Exception:
        return None


def _number(value: Any, unit: float = 1) -> float | None:
    """Return a number in another unit; amdsmi says `N/A` where it has none."""
    return value / unit if isinstance(value, int | float) and not isinstance(value, bool) else None


class AmdSmi(Source):
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
        """Start the library and look for the card; return why there is none."""
        if self._smi is None:
            return "amdsmi cannot be imported"
        try:
            self._smi.amdsmi_init()
            handles = list(self._smi.amdsmi_get_processor_handles())
            addresses = [str(self._smi.amdsmi_get_gpu_device_bdf(handle)).lower() for handle in handles]
        except Exception as error:
            return f"amdsmi does not start: {type(error).__name__}: {error}"
        wanted = addresses[0] if self._address is None and len(handles) == 1 else str(self._address).lower()
        if wanted not in addresses:
            return f"amdsmi lists no card at {self._address}, only {', '.join(addresses) or 'none'}"
        self._handle = handles[addresses.index(wanted)]
        return None

    def read(self) -> Reading:
        """Read each value by itself: which of them a card has differs."""
        if self._handle is None:
            return Reading()
        smi, handle = self._smi, self._handle
        activity = _tried(smi, "amdsmi_get_gpu_activity", handle) or {}
        memory = _tried(smi, "amdsmi_get_gpu_vram_usage", handle) or {}  # in MB
        power = _tried(smi, "amdsmi_get_power_info", handle) or {}
        watts = (_number(power.get(key)) for key in ("current_socket_power", "average_socket_power", "socket_power"))
        degrees = (_number(_tried(self, "_temperature", spot)) for spot in ("EDGE", "HOTSPOT", "JUNCTION"))
        return Reading(
            busy_percent=_number(activity.get("gfx_activity")),
            vram_used_mb=_number(memory.get("vram_used")),
            vram_total_mb=_number(memory.get("vram_total")),
            temperature_c=next(filter(None, degrees), None),
            power_w=next(filter(None, watts), None),  # 0 means that it is not measured
        ).plausible()

    def _temperature(self, spot: str) -> Any:
        smi = self._smi
        where = getattr(smi.AmdSmiTemperatureType, spot)
        return smi.amdsmi_get_temp_metric(self._handle, where, smi.AmdSmiTemperatureMetric.CURRENT)

    def close(self) -> None:
        """Forget the card. The library stays started: torch uses it too, and it has one state for the whole process."""
        self._handle = None


class Nvml(Source):
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
        """Start the library and look for the card; return why there is none."""
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
                return "there are several NVIDIA cards, and torch does not say which one it computes on"
        except Exception as error:
            return f"NVML does not start: {type(error).__name__}: {error}"
        return None

    def read(self) -> Reading:
        """Read each value by itself: which of them a card has differs."""
        if self._handle is None:
            return Reading()
        nvml, handle = self._nvml, self._handle
        memory = _tried(nvml, "nvmlDeviceGetMemoryInfo", handle)
        return Reading(
            busy_percent=_number(getattr(_tried(nvml, "nvmlDeviceGetUtilizationRates", handle), "gpu", None)),
            vram_used_mb=_number(getattr(memory, "used", None), MIB),
            vram_total_mb=_number(getattr(memory, "total", None), MIB),
            temperature_c=_number(_tried(nvml, "nvmlDeviceGetTemperature", handle, _NVML_TEMPERATURE_GPU)),
            power_w=_number(_tried(nvml, "nvmlDeviceGetPowerUsage", handle), 1e3),
        ).plausible()

    def close(self) -> None:
        """Count this use of the library off: others of the process keep theirs."""
        self._handle = None
        if self._began:
            self._began = False
            _tried(self._nvml, "nvmlShutdown")
