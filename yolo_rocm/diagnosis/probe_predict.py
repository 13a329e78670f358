"""Which engines of prediction work here: what is missing, and a convolution by each in a process that may die."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..hardware import Machine
from .outcome import Limits, ProbeOutcome
from .predict_engines import PREDICT_ENGINES
from .probe_runner import run_probes
from .probes import DeviceProbe
from .vulkan import VulkanDevice, vulkan_devices

KIND: Final = "predict"
AT: Final = "@"  # between engine and device in the `way` of a probe
# Compilers and shaders take their time at the first start.
_LIMITS: Final = Limits(start=90.0, probe=90.0, total=400.0)


@dataclass(frozen=True)
class EngineState:
    """An engine of prediction on this machine.

    Attributes:
        engine: Its name.
        title: What computes, on what.
        usable: Whether it can be used on some device.
        reasons: Why it cannot be.
        install: The command that installs what is missing.
        works: Devices and data types on which it has answered rightly, as `vulkan:0 fp16`.
        failed: Those on which it has not, and how.
        faults: What is known to be wrong with it on such a machine, and where from.
    """

    engine: str
    title: str
    usable: bool
    reasons: tuple[str, ...]
    install: str
    works: tuple[str, ...]
    failed: tuple[str, ...]
    faults: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def child_command() -> list[str]:
    """Return the command of the process that answers."""
    return [sys.executable, "-m", "yolo_rocm.diagnosis.probe_predict_child"]


def predict_probes(machine: Machine, devices: Sequence[VulkanDevice] = ()) -> tuple[DeviceProbe, ...]:
    """Return what to ask the engines that are installed; torch itself has probes of its own."""
    probes = []
    for name in ("onnx", "openvino", "migraphx", "ncnn"):  # what may take a driver down comes last
        if PREDICT_ENGINES[name].reasons_against(machine, exports=False):
            continue
        if name in ("onnx", "migraphx", "openvino") and machine.packages.version("onnx") is None:
            continue  # the model of the probe is written with it, and so is the user's
        places = [("gpu:0", "fp32")] if name == "migraphx" else [("cpu", "fp32")]
        if name == "ncnn":
            places += [(f"vulkan:{device.index}", dtype) for device in devices for dtype in ("fp32", "fp16")]
        probes += [DeviceProbe(KIND, f"{name}{AT}{place}", dtype) for place, dtype in places]
    return tuple(probes)


def engine_states(
    machine: Machine,
    *,
    probes: bool = True,
    command: Sequence[str] | None = None,
    devices: Sequence[VulkanDevice] | None = None,
    progress: Callable[[int, int], None] | None = None,
    limits: Limits = _LIMITS,
) -> tuple[EngineState, ...]:
    """Return what is known of every engine of prediction on a machine.

    Args:
        machine: The machine.
        probes: Whether to let each compute something.
        command: The process that answers; the package's own by default.
        devices: Vulkan devices; those of this machine by default, where probes are wanted.
        progress: Called with (answered, all).
        limits: How long to wait.
    """
    outcomes: tuple[ProbeOutcome, ...] = ()
    if probes:
        installed = machine.packages.version("ncnn") is not None
        found = devices if devices is not None else vulkan_devices() if installed else ()
        asked = predict_probes(machine, found)
        # A death of one data type says nothing of the other: fp16 in ncnn is what dies where fp32 works.
        outcomes = run_probes(asked, command or child_command(), limits, None, progress).outcomes if asked else ()
    states = []
    for engine in PREDICT_ENGINES.values():
        own = [outcome for outcome in outcomes if outcome.name.startswith(f"{KIND}/{engine.name}{AT}")]
        works = tuple(_place(outcome) for outcome in own if outcome.status == "ok")
        failed = tuple(f"{_place(o)}: {o.status}, {o.message}" for o in own if o.status not in ("ok", "skipped"))
        reasons = engine.reasons_against(machine)
        states.append(
            EngineState(
                engine.name,
                engine.title,
                not reasons and (not own or bool(works)),
                tuple(reasons),
                engine.install_line(machine.system) if reasons and not engine.unfit(machine) else "",
                works,
                failed,
                tuple((fault.what, fault.source) for fault in engine.faults if machine.gpus or not fault.gpu),
            )
        )
    return tuple(states)


def _place(outcome: ProbeOutcome) -> str:
    _, way, dtype = outcome.name.split("/")
    return f"{way.partition(AT)[2]} {dtype}"
