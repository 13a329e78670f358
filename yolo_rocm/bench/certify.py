"""`yolo-rocm certify`: doctor, kernels, a demo and a short `bench train` on an owner's card, in one file to send.

The parts follow each other; one that fails is recorded in full words, and the others still run. Everything that touches
the device does so in processes of their own: `certify_child`. What the owner has chosen for trainings of their own has
no part in it, and nothing is left in the owner's folders.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..diagnosis.context import training_environment
from ..diagnosis.doctor import doctor
from ..diagnosis.outcome import DEATHS, Limits
from ..diagnosis.probes import DTYPES
from ..diagnosis.redaction import redact, without_paths
from ..engines.names import NATIVE
from ..engines.triton.available import installed_version
from ..errors import ConfigError
from ..hardware import OVERRIDE, Gpu, Machine, detect, overridden_gfx
from ..preset.evidence import Certificate, seal
from ..preset.files import plain
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..preset.select import PRESET_VARIABLE
from ..utils.child_process import UNKILLABLE, ChildResult, run_module
from ..utils.progress import progress
from .demo import OURS_ON_CPU

ENGINES: Final = ("gemm", "aten", "triton", "hip", "vendor")  # the one that brings cards down is last
LIMITS_S: Final = {"doctor": Limits().total, "kernels": 1200.0, "demo": 600.0, "bench_train": 900.0}
# The demo reached 0.94 on a CPU with engine gemm, and 0.00 after its first epoch.
LEAST_MAP50: Final = 0.3
_ENGINE_LIMIT_S: Final = 300.0  # for one engine in one data type: its kernels are compiled first
_TRAIN_LIMIT_S: Final = 450.0
_WITHOUT_VENDOR: Final = "vendor off,ours,ours lean"
_KERNELS: Final = "largest errors against fp64 on the CPU, in roundings of the data type, and what is allowed"
_GLANCE: Final = "a glance, few steps and small sizes: `yolo-rocm bench train` measures"


@dataclass
class PartOutcome:
    """What a part has shown; it has passed where there are no failures."""

    summary: str
    failures: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)


class PartError(Exception):
    """A part has come to no result; the message says why."""


def certify(
    device: str | None = None,
    *,
    quick: bool = False,
    machine: Machine | None = None,
    announce: Callable[[str, float], None] = lambda part, limit_s: None,
) -> dict[str, Any]:
    """Run all parts and return the certificate, redacted and sealed.

    Args:
        device: `cuda` or `cpu`; the GPU by default, where torch can use one.
        quick: Smallest sizes and fp32 alone: to try the command out. Its file is no evidence.
        machine: Facts to go by; those of this machine by default.
        announce: Called with the name of each part that begins, and how many seconds it takes at most.

    Raises:
        ConfigError: `device` is neither, or the installed torch cannot use it.
    """
    machine = machine or detect()
    device = checked_device(device, machine)
    started = time.monotonic()
    with _isolated():
        examination = Examination(device, machine, quick)
        parts = {}
        for name, part in examination.parts().items():
            announce(name, LIMITS_S[name])
            parts[name] = examination.run(name, part)
        preset, kind = examination.settings.preset, examination.kind
        data = {
            "card": {**cleaned(examination.card()), "kind": kind},
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "parts": {name: cleaned(part) for name, part in parts.items()},
            # Words of closed lists: an owner who is called like a preset must not lose it.
            "preset": {"name": preset.name, "engine": preset.conv.engine, "vendor": preset.conv.vendor},
            "quick": quick,
            "seconds": cleaned(time.monotonic() - started),
            "stack": cleaned(_stack_facts(machine, kind, examination.probed)),
        }
    sealed = seal(data)
    Certificate.model_validate(sealed)
    return sealed


def checked_device(device: str | None, machine: Machine) -> str:
    """Return the device to certify.

    Raises:
        ConfigError: It is neither `cuda` nor `cpu`, or the installed torch cannot use it.
    """
    if device not in (None, "cuda", "cpu"):
        raise ConfigError(
            f"device must be 'cuda' or 'cpu', got {device!r}. 'cuda' is also torch's name for an AMD GPU."
        )
    for_gpus = machine.build in ("hip", "cuda")
    if device == "cuda" and not for_gpus:
        torch = f"is a {machine.build} build" if machine.build else "is missing"
        raise ConfigError(
            f"device 'cuda': the installed torch {torch} and can use no GPU. `yolo-rocm doctor` says what to install; "
            "--device cpu certifies the processor."
        )
    if device is None and machine.gpu is None and for_gpus:
        raise ConfigError(
            f"the installed torch is a {machine.build} build, but {machine.no_gpu_reason}. Pass --device cuda to "
            "certify the GPU that torch finds all the same, as in some containers, or --device cpu to certify the "
            "processor."
        )
    return device or ("cpu" if machine.gpu is None else "cuda")


class Examination:
    """The parts, on one device.

    Attributes:
        kind: `amd`, `nvidia` or `cpu`.
        settings: What the demo trains with: an AMD card's own preset; elsewhere one that uses our engines.
        probed: What the device has said of itself.
    """

    def __init__(self, device: str, machine: Machine, quick: bool) -> None:
        self._device, self._machine, self._quick = device, machine, quick
        self.kind = "cpu" if device == "cpu" else "amd" if machine.build == "hip" else "nvidia"
        own_preset = self.kind == "amd" and machine.gpu is not None
        self._preset = "cpu" if self.kind == "cpu" else "auto" if own_preset else "generic"
        conv = OURS_ON_CPU["conv"] if self.kind == "cpu" else {}
        vendor = resolve(self._preset, {"conv": conv}, machine=machine).preset.conv.vendor
        # Said aloud, so that what the doctor learns of the vendor library does not turn it on for the demo.
        self._rocm = {"conv": {**conv, "vendor": vendor}}
        self.settings: Settings = resolve(self._preset, self._rocm, machine=machine)
        self._environ = training_environment(self.settings.preset, machine)
        self.probed: Mapping[str, Any] = {}
        self._vendor_died = False
        self._held = False  # by a process that cannot be killed: whatever else would use the GPU would hang too

    def parts(self) -> dict[str, Callable[[], PartOutcome]]:
        """Return the parts by name, in their order."""
        return {
            "doctor": self._doctor,
            "kernels": self._kernels,
            "demo": self._demo,
            "bench_train": self._bench_train,
        }

    def run(self, name: str, part: Callable[[], PartOutcome]) -> dict[str, Any]:
        """Run a part; whatever it raises is its failure."""
        started = time.monotonic()
        try:
            if self._held:
                raise PartError(f"not run: a process that {UNKILLABLE} holds the device")
            outcome = part()
        except Exception as error:  # recorded, and the other parts still run
            first = next(iter(str(error).strip().splitlines()), "")
            why = first if isinstance(error, PartError) else f"{type(error).__name__}: {first}"
            outcome = PartOutcome(f"not finished: {why}", [why])
        return {**asdict(outcome), "seconds": time.monotonic() - started}

    def card(self) -> dict[str, Any]:
        """Return which card it is, from the machine's files; what these do not know, from torch."""
        if self.kind == "cpu":
            return {"name": f"CPU {platform.machine()}"}
        gpu = self._gpu()
        presented = self._presented_as(gpu)
        gfx = gpu.gfx or (None if presented else self.probed.get("gfx"))
        return {
            "name": gpu.name or self.probed.get("name"),
            "gfx": gfx,
            "presents_as": None if presented == gfx else presented,
            "memory_gb": gpu.vram_gb or self.probed.get("memory_gb"),
            "integrated": gpu.integrated,
        }

    def _gpu(self) -> Gpu:
        """Return the GPU that has run: torch's first one, where that is not the one to train on."""
        gpu = self._machine.gpu or Gpu(self.kind)
        if not self._other_card():
            return gpu
        others = [each for each in self._machine.visible if each is not gpu]
        same_name = [each for each in others if _same_name(each.name, self.probed.get("name"))]
        same_gfx = [each for each in others if each.gfx and each.gfx == self.probed.get("gfx")]
        return next(iter((*same_name, *same_gfx)), Gpu(self.kind))

    def _presented_as(self, gpu: Gpu) -> str | None:
        """Return the target that an override makes torch report for a GPU; None without one."""
        if self._machine.system != "linux":
            return None
        if gpu.node is not None:
            own = self._environ.get(f"{OVERRIDE}_{gpu.node}") or self._environ.get(OVERRIDE)
            return overridden_gfx(own)
        # Any node's override may be its.
        values = (value for name, value in self._environ.items() if re.fullmatch(rf"{OVERRIDE}(_\d+)?", name))
        targets = [target for target in map(overridden_gfx, values) if target]
        reported = self.probed.get("gfx")
        return reported if reported in targets else None if reported else next(iter(targets), None)

    def _doctor(self) -> PartOutcome:
        with progress("certifying, doctor") as show:
            diagnosis = doctor(device=self._device, machine=self._machine, progress=show)
        outcomes, verdict = diagnosis.outcomes, diagnosis.verdict
        self._hold(any(UNKILLABLE in each.message for each in outcomes))
        self.probed = next((each.detail for each in outcomes if each.name == "device"), {})
        self._vendor_died = any(each.status in DEATHS and "/vendor/" in each.name for each in outcomes)
        statuses = [each.status for each in outcomes]
        failures = [] if verdict.works else [verdict.text]
        if not outcomes:
            failures.append("the device was not probed")
        if other := self._other_card():
            failures.append(other)
        return PartOutcome(
            f"{statuses.count('ok')} of {len(statuses)} probes right, {statuses.count('skipped')} skipped. "
            f"{verdict.text}",
            failures,
            {
                "verdict": verdict.text,
                "next": verdict.next,
                "findings": [f"{each.severity} {each.id}: {each.finding}" for each in diagnosis.findings],
                "probes": {each.name: ", ".join(filter(None, (each.status, each.message))) for each in outcomes},
                "details": {each.name: dict(each.detail) for each in outcomes if each.detail},
                "engine_triton": diagnosis.triton,
                "engine_hip": diagnosis.hip,
            },
        )

    def _other_card(self) -> str:
        """Return what is wrong where torch's first GPU is not the one whose preset this is; nothing where it is."""
        gpu, gfx, name = self._machine.gpu, self.probed.get("gfx"), self.probed.get("name")
        if self._device != "cuda" or gpu is None:
            return ""
        expected = self._presented_as(gpu) or gpu.gfx
        others = [each.name for each in self._machine.visible if each is not gpu]
        named_otherwise = not _same_name(gpu.name, name) and any(_same_name(each, name) for each in others)
        if not named_otherwise and (not gfx or not expected or gfx == expected):
            return ""
        return (
            f"torch's first GPU is {' '.join(str(word) for word in (name, gfx) if word)}, and not {gpu}, whose preset "
            f"this is: set {'HIP' if self.kind == 'amd' else 'CUDA'}_VISIBLE_DEVICES to the number of the card to "
            "certify, and run it again"
        )

    def _kernels(self) -> PartOutcome:
        """Compare every algorithm with fp64, each engine and data type in a process of its own."""
        dtypes = DTYPES[:1] if self._quick else DTYPES
        pairs = [(engine, dtype) for engine in ENGINES for dtype in dtypes]
        tried: dict[str, Any] = {}
        failures: list[str] = []
        native: list[str] = []
        reasons: dict[str, str] = {}
        started = time.monotonic()
        with progress("certifying, kernels") as show:
            for done, (engine, dtype) in enumerate(pairs):
                show(done, len(pairs))
                if self._held or time.monotonic() - started > LIMITS_S["kernels"]:
                    failures.append(f"{engine}/{dtype}: not run, the device is held or time was over")
                    continue
                result = self._child("kernels", {"engine": engine, "dtype": dtype}, _ENGINE_LIMIT_S)
                found = result.answer.get("tried", {})
                tried |= found
                reasons |= {f"{engine}/{dtype}": why for why in [result.answer.get("not_supported")] if why}
                wrong = [f"{name}: {facts['wrong']}" for name, facts in found.items() if facts.get("wrong")]
                if result.error:
                    at = result.answer.get("next")
                    wrong.append(f"{engine}/{dtype}{f', {at}' if at else ''}: {result.error}")
                (native if engine in NATIVE else failures).extend(wrong)
        ours = [facts for name, facts in tried.items() if name.partition("/")[0] not in NATIVE]
        right = sum(not facts.get("wrong") for facts in ours)
        if not right:
            failures.append("no kernel of ours gave a right result")
        without = [engine for engine in ("triton", "hip") if not any(name.startswith(f"{engine}/") for name in tried)]
        return PartOutcome(
            f"{right} of {len(ours)} of ours right (operator, algorithm, data type, layout)"
            + (f"; wrong or failing of torch's own: {len(native)}" if native else "")
            + (f"; not run: {', '.join(without)}" if without else ""),
            failures,
            {"what": _KERNELS, "tried": tried, "not_supported": reasons, "torch_own_failures": native},
        )

    def _demo(self) -> PartOutcome:
        settings = {"preset": self._preset, "rocm": self._rocm, "quick": self._quick}
        facts = self._answer("demo", settings, LIMITS_S["demo"])
        failures = []
        if not self._quick and not facts["map50"] >= LEAST_MAP50:  # a NaN is less
            failures.append(
                f"mAP50 is {facts['map50']:.3f} after {facts['epochs']} epochs, at least {LEAST_MAP50} is due"
            )
        epochs = f"{facts['epochs']} epoch{'s' * (facts['epochs'] != 1)}"
        return PartOutcome(f"mAP50 {facts['map50']:.3f} after {epochs}; {facts['patched']}", failures, facts)

    def _bench_train(self) -> PartOutcome:
        """Time steps, and once more without the vendor library where they fail with it: that is no fault of ours.

        MIOpen may also search and compile for many minutes where it has never run before.
        """
        given = {"quick": self._quick, "batch": self.settings.preset.train.get("batch"), "ways": None}
        without = {**given, "ways": _WITHOUT_VENDOR}
        more = {"what": _GLANCE}
        if self._vendor_died:
            more["with_vendor_library"] = "left out: it has ended a process of the doctor"
            found = self._answer("bench_train", without, _TRAIN_LIMIT_S)
        else:
            try:
                found = self._answer("bench_train", given, _TRAIN_LIMIT_S)
            except PartError as error:
                if self._held:
                    raise
                more["with_vendor_library"] = str(error)
                found = self._answer("bench_train", without, _TRAIN_LIMIT_S)
        return PartOutcome(found.pop("summary"), found.pop("failures"), {**found, **more})

    def _answer(self, part: str, settings: dict[str, Any], limit_s: float) -> dict[str, Any]:
        result = self._child(part, settings, limit_s)
        if result.error:
            raise PartError(result.error)
        return dict(result.answer)

    def _child(self, part: str, settings: dict[str, Any], limit_s: float) -> ChildResult:
        with tempfile.TemporaryDirectory(prefix="yolo-rocm-certify-", ignore_cleanup_errors=True) as folder:
            given = {**settings, "part": part, "device": self._device, "folder": folder}
            # The engines are tried even where they are switched off; nothing is downloaded.
            own = {"YOLO_ROCM": None, "YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": folder}
            result = run_module("yolo_rocm.bench.certify_child", given, limit_s, {**self._environ, **own})
        self._hold(result.unkillable)
        return result

    def _hold(self, held: bool) -> None:
        self._held |= held and self._device == "cuda"


def _same_name(one: str | None, other: str | None) -> bool:
    first, second = (plain(name).removeprefix("nvidia") for name in (one, other))
    return bool(first) and first == second


def _stack_facts(machine: Machine, kind: str, probed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the software; of the kernel its numbers, the rest of its name may be anybody's own."""
    windows = machine.gpu.driver if machine.gpu is not None else None
    linux = {"nvidia": machine.nvidia, "amd": machine.amdgpu}.get(kind)
    kernel = re.match(r"\d+(?:\.\d+)*", machine.kernel or "")
    as_found = ("system", "distribution", "python", "torch", "build", "hip", "rocm", "ultralytics")
    return {
        **{name: getattr(machine, name) for name in as_found},
        "kernel": kernel.group() if kernel else None,
        "overlays": list(machine.overlays),
        "machine": platform.machine(),
        "driver": windows or linux,
        "cuda": probed.get("cuda"),
        "triton": installed_version() or "none",
        "yolo_rocm": __version__,
    }


def cleaned(value: Any) -> Any:
    """Return plain data for strangers: no names, secrets or paths in its texts, and numbers of six digits.

    Keys are words of this package and stay: somebody's user name may be one of them.
    """
    if isinstance(value, Mapping):
        return {str(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return without_paths(redact(str(value)))


@contextmanager
def _isolated() -> Iterator[None]:
    """Use shipped presets and an empty cache, and leave by an exception when asked to end, so that all is cleaned up.

    Triton's interpreter is left out too: it computes on the CPU, whatever device was asked for.
    """

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    handlers = {}
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            handlers[number] = signal.signal(number, leave)
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-certify-", ignore_cleanup_errors=True) as folder:
        own = {"YOLO_ROCM_CONFIG": str(Path(folder, "config")), "YOLO_ROCM_CACHE": str(Path(folder, "cache"))}
        before = {name: os.environ.pop(name, None) for name in (PRESET_VARIABLE, "TRITON_INTERPRET", *own)}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            for number, handler in handlers.items():
                signal.signal(number, handler)
