"""Which engines of prediction work here: what is missing, and a convolution by each in a process that may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..hardware import Machine
from ..utils.child_process import run_module
from .predict_engines import PREDICT_ENGINES
from .vulkan import VulkanDevice, vulkan_devices

_CHILD: Final = "yolo_rocm.diagnosis.probe_predict_child"
_LIMIT_S: Final = 90.0  # compilers and shaders take their time at the first start
_LARGEST_ERROR: Final = {"fp32": 1e-3, "fp16": 2e-2}


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


def predict_probes(machine: Machine, devices: Sequence[VulkanDevice] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield engine, device and data type of what to ask; torch itself has probes of its own.

    Args:
        machine: The machine.
        devices: Its Vulkan devices.
    """
    for name in ("onnx", "openvino", "ncnn"):  # what may take a driver down comes last
        # The model of the first two is written with onnx, and so is the user's.
        writes = name == "ncnn" or machine.packages.version("onnx") is not None
        if writes and not PREDICT_ENGINES[name].not_installed(machine, exports=False):
            yield name, "cpu", "fp32"
            for device in devices if name == "ncnn" else ():
                yield from ((name, f"vulkan:{device.index}", dtype) for dtype in ("fp32", "fp16"))


def engine_states(
    machine: Machine,
    *,
    probes: bool = True,
    devices: Sequence[VulkanDevice] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[EngineState, ...]:
    """Return what is known of every engine of prediction on a machine.

    Args:
        machine: The machine.
        probes: Whether to let each compute something.
        devices: Vulkan devices; those of this machine by default, where probes are wanted.
        progress: Called with (answered, all).
    """
    works: dict[str, list[str]] = {name: [] for name in PREDICT_ENGINES}
    failed: dict[str, list[str]] = {name: [] for name in PREDICT_ENGINES}
    if probes:
        if devices is None:
            devices = vulkan_devices() if machine.packages.version("ncnn") is not None else ()
        asked = list(predict_probes(machine, devices))
        for done, (engine, device, dtype) in enumerate(asked, 1):
            why = _what_is_wrong(engine, device, dtype)
            (failed if why else works)[engine].append(f"{device} {dtype}{f': {why}' if why else ''}")
            if progress is not None:
                progress(done, len(asked))
    states = []
    for name, engine_facts in PREDICT_ENGINES.items():
        reasons = engine_facts.reasons_against(machine)
        states.append(
            EngineState(
                name,
                engine_facts.title,
                not reasons and (not failed[name] or bool(works[name])),
                tuple(reasons),
                engine_facts.install_line(machine.system) if reasons else "",
                tuple(works[name]),
                tuple(failed[name]),
                tuple((fault.what, fault.source) for fault in engine_facts.faults if machine.gpus or not fault.gpu),
            )
        )
    return tuple(states)


def _what_is_wrong(engine: str, device: str, dtype: str) -> str:
    result = run_module(_CHILD, {"engine": engine, "device": device, "fp16": dtype == "fp16"}, _LIMIT_S)
    if result.error:
        return result.error
    error = float(result.answer["error"])
    return "" if error <= _LARGEST_ERROR[dtype] else f"wrong, relative error {error:.1e}"  # a NaN is wrong
