"""The ways to predict that a machine has: each engine that is installed, on every device it can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..diagnosis.predict_engines import PREDICT_ENGINES
from ..diagnosis.vulkan import vulkan_devices
from ..errors import ConfigError, EngineError, nearest
from ..hardware import Machine
from ..ultralytics_hooks import predicting

AUTO: Final = "auto"
TORCH: Final = "torch"
ENGINES: Final = (AUTO, *PREDICT_ENGINES)


@dataclass(frozen=True)
class Way:
    """One way to predict.

    Attributes:
        engine: One of `PREDICT_ENGINES`.
        device: `cpu`, `cuda:N` or `vulkan:N`.
        dtype: `fp32` or `fp16`.
    """

    engine: str
    device: str = "cpu"
    dtype: str = "fp32"

    @property
    def name(self) -> str:
        """The way in words, e.g. `ncnn vulkan:0 fp16`."""
        return f"{self.engine} {self.device} {self.dtype}"

    @property
    def format(self) -> str:
        """What the weights are exported to; empty where they are used as they are."""
        return PREDICT_ENGINES[self.engine].format

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with which Ultralytics predicts this way."""
        half = {"half": True} if self.dtype == "fp16" and self.engine in (TORCH, "torchscript") else {}
        return {"device": self.device.removeprefix("cuda:"), **half}

    def export_arguments(self, imgsz: Any) -> dict[str, Any]:
        """Return the arguments with which the weights are exported for this way."""
        # Any size: images are not padded to a square.
        return {"imgsz": imgsz, **({"dynamic": True} if self.engine in ("onnx", "openvino") else {})}


BASE: Final = Way(TORCH)  # what everything is compared with


def check_engine(engine: str, machine: Machine) -> str:
    """Return an engine's name as it is.

    Raises:
        ConfigError: There is none of that name.
        EngineError: This machine lacks its packages.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}{nearest(str(engine), ENGINES)} Allowed: {', '.join(ENGINES)}.")
    missing = [] if engine == AUTO else PREDICT_ENGINES[engine].missing(machine)
    if missing:
        install = PREDICT_ENGINES[engine].install_line(machine.system)
        raise EngineError(f"engine={engine} needs {' and '.join(missing)}. To install it: {install}")
    return engine


def candidates(machine: Machine, engine: str, engines: Sequence[str], device: Any = None) -> list[Way]:
    """Return the ways that `engine=` chooses from.

    Args:
        machine: The machine.
        engine: An engine's name, or `auto`.
        engines: The preset's, for `auto`.
        device: Ultralytics' `device` argument.
    """
    names = (TORCH, *engines) if engine == AUTO else (engine,)
    usable = ways(machine, names, device, software="vulkan" in str(device))
    return [way for way in usable if way.engine in names and on_device(way, device)]


def ways(
    machine: Machine, engines: Sequence[str] | None = None, device: Any = None, software: bool = True
) -> list[Way]:
    """Return the ways that a machine has, torch on the CPU first.

    Args:
        machine: The machine.
        engines: Only these; all by default.
        device: Ultralytics' `device` argument: only ways on it.
        software: Whether Vulkan drivers that compute on the CPU count: they are right, and slower than the CPU itself.
    """
    names = [name for name in PREDICT_ENGINES if engines is None or name in engines]
    usable = [way for name in names if not PREDICT_ENGINES[name].missing(machine) for way in _of_engine(name, software)]
    return [BASE, *(way for way in usable if way != BASE and on_device(way, device))]


def _of_engine(name: str, software: bool) -> Iterator[Way]:
    yield Way(name)
    devices: list[str] = []
    if name == "ncnn" and predicting.takes_vulkan():
        devices = [f"vulkan:{each.index}" for each in vulkan_devices() if software or not each.is_software]
    elif name in (TORCH, "torchscript"):
        import torch

        devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    yield from (Way(name, device, dtype) for device in devices for dtype in ("fp32", "fp16"))


def on_device(way: Way, device: Any) -> bool:
    """Return whether a way computes on the device that was asked for; None and empty ask for none."""
    if device is None or str(device) == "":
        return True
    asked = str(device[0] if isinstance(device, list | tuple) and device else device).lower()
    asked = f"cuda:{asked}" if asked.isdigit() else {"cuda": "cuda:0", "vulkan": "vulkan:0"}.get(asked, asked)
    return way.device == asked
