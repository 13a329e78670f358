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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from ..hardware import OVERRIDE, Gpu, Machine, detect
from ..preset.evidence import Certificate, seal
from ..preset.resolve import resolve
from ..preset.select import PRESET_VARIABLE
from ..utils.child_process import UNKILLABLE, ChildResult, run_module
from .demo import OURS_ON_CPU

ENGINES: Final = ("gemm", "aten", "triton", "hip", "vendor")  # the one that brings cards down is last
LIMITS_S: Final = {"doctor": Limits().total, "kernels": 1800.0, "demo": 600.0, "bench_train": 900.0}
# The demo reached 0.94 on a CPU with engine gemm, and 0.00 after its first epoch.
LEAST_MAP50: Final = 0.3
_KERNELS: Final = "largest errors against fp64 on the CPU, in roundings of the data type, and what is allowed"
_GLANCE: Final = "a glance, few steps and small sizes: `yolo-rocm bench train` measures"

Part = dict[str, Any]  # summary, failures, results


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
    with _isolated() as folder:
        card = _Card(device, machine, quick, folder)
        parts = {}
        for name, limit_s in LIMITS_S.items():
            announce(name, limit_s)
            began = time.monotonic()
            try:
                if card.is_held:
                    raise RuntimeError(f"not run: a process that {UNKILLABLE} holds the device")
                outcome = getattr(card, name)()
            except Exception as error:  # recorded, and the other parts still run
                why = f"{type(error).__name__}: {error}" if type(error) is not RuntimeError else str(error)
                outcome = {"summary": f"not finished: {why}", "failures": [why]}
            parts[name] = _cleaned({**outcome, "seconds": time.monotonic() - began})
        preset = card.settings.preset
        data = {
            "card": {**_cleaned(card.facts()), "kind": card.kind},
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "parts": parts,
            # Words of closed lists: an owner who is called like a preset must not lose it.
            "preset": {"name": preset.name, "engine": preset.conv.engine, "vendor": preset.conv.vendor},
            "quick": quick,
            "seconds": _cleaned(time.monotonic() - started),
            "stack": _cleaned(_stack_facts(machine, card.kind, card.probed)),
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
        raise ConfigError(f"device must be 'cuda', also for an AMD GPU, or 'cpu', got {device!r}.")
    if device == "cuda" and machine.build not in ("hip", "cuda"):
        raise ConfigError("device 'cuda': there is no torch here that can use a GPU. `yolo-rocm doctor` says more.")
    if device is None and machine.gpu is None and machine.build in ("hip", "cuda"):
        raise ConfigError(
            f"the installed torch is a {machine.build} build, but {machine.no_gpu_reason}. Pass --device cuda for one "
            "that torch finds all the same, as in some containers, or --device cpu to certify the processor."
        )
    return device or ("cpu" if machine.gpu is None else "cuda")


class _Card:
    """A device, with a method for each part, by its name in `LIMITS_S`."""

    def __init__(self, device: str, machine: Machine, quick: bool, folder: Path) -> None:
        self._device, self._machine, self._quick, self._folder = device, machine, quick, folder
        self.kind = "cpu" if device == "cpu" else "amd" if machine.build == "hip" else "nvidia"
        # An AMD card's own preset; elsewhere one that uses our engines.
        own_preset = self.kind == "amd" and machine.gpu is not None
        self._preset = "cpu" if self.kind == "cpu" else "auto" if own_preset else "generic"
        conv = OURS_ON_CPU["conv"] if self.kind == "cpu" else {}
        vendor = resolve(self._preset, {"conv": conv}, machine=machine).preset.conv.vendor
        # Said aloud, so that what the doctor learns of the vendor library does not turn it on for the demo.
        self._rocm = {"conv": {**conv, "vendor": vendor}}
        self.settings = resolve(self._preset, self._rocm, machine=machine)
        self._environ = training_environment(self.settings.preset, machine)
        self.probed: Mapping[str, Any] = {}
        self._vendor_died = False
        self.is_held = False  # by a process that cannot be killed: whatever else would use the GPU would hang too

    def facts(self) -> dict[str, Any]:
        """Return which card it is, from the machine's files; what these do not know, from torch."""
        if self.kind == "cpu":
            return {"name": f"CPU {platform.machine()}"}
        gpu, reported = self._machine.gpu or Gpu(self.kind), self.probed.get("gfx")
        presents_as = reported if self._is_overridden() and reported != gpu.gfx else None
        return {
            "name": gpu.name or self.probed.get("name"),
            "gfx": gpu.gfx or (None if presents_as else reported),
            "presents_as": presents_as,
            "memory_gb": gpu.vram_gb or self.probed.get("memory_gb"),
            "integrated": gpu.integrated,
        }

    def _is_overridden(self) -> bool:
        return any(re.fullmatch(rf"{OVERRIDE}(_\d+)?", name) for name in self._environ)

    def doctor(self) -> Part:
        """Examine the machine as `yolo-rocm doctor` does."""
        diagnosis = doctor(device=self._device, machine=self._machine)
        outcomes, verdict = diagnosis.outcomes, diagnosis.verdict
        self._hold(any(UNKILLABLE in each.message for each in outcomes))
        self.probed = next((each.detail for each in outcomes if each.name == "device"), {})
        self._vendor_died = any(each.status in DEATHS and "/vendor/" in each.name for each in outcomes)
        failures = [] if verdict.works else [verdict.text]
        if not outcomes:
            failures.append("the device was not probed")
        gpu, reported = self._machine.gpu, self.probed.get("gfx")
        if gpu and gpu.gfx and reported and reported != gpu.gfx and not self._is_overridden():
            variable = f"{'HIP' if self.kind == 'amd' else 'CUDA'}_VISIBLE_DEVICES"
            failures.append(
                f"torch's first GPU is a {reported}, and not {gpu}, whose preset this is: set {variable} to the number "
                "of the card to certify, and run it again"
            )
        right = sum(each.status == "ok" for each in outcomes)
        return {
            "summary": f"{right} of {len(outcomes)} probes right. {verdict.text}",
            "failures": failures,
            "results": {
                "verdict": verdict.text,
                "next": verdict.next,
                "findings": [f"{each.severity} {each.id}: {each.finding}" for each in diagnosis.findings],
                "probes": {each.name: ", ".join(filter(None, (each.status, each.message))) for each in outcomes},
                "details": {each.name: dict(each.detail) for each in outcomes if each.detail},
                "engine_triton": diagnosis.triton,
                "engine_hip": diagnosis.hip,
            },
        }

    def kernels(self) -> Part:
        """Compare every algorithm with fp64, each engine in a process of its own."""
        tried: dict[str, Any] = {}
        failures: list[str] = []
        native: list[str] = []
        reasons: dict[str, str] = {}
        end = time.monotonic() + LIMITS_S["kernels"]
        for engine in ENGINES:
            given = {"engine": engine, "dtypes": DTYPES[:1] if self._quick else DTYPES}
            result = self._child("kernels", given, max(1.0, end - time.monotonic()))
            of_engine = result.answer.get("tried", {})
            tried |= of_engine
            reasons |= result.answer.get("not_supported", {})
            wrong = [f"{name}: {facts['wrong']}" for name, facts in of_engine.items() if facts.get("wrong")]
            if result.error:
                wrong.append(f"{engine}, {result.answer.get('next', 'at its start')}: {result.error}")
            (native if engine in NATIVE else failures).extend(wrong)
        ours = [facts for name, facts in tried.items() if name.partition("/")[0] not in NATIVE]
        right = sum(not facts.get("wrong") for facts in ours)
        if not right:
            failures.append("no kernel of ours gave a right result")
        without = [engine for engine in ("triton", "hip") if not any(name.startswith(f"{engine}/") for name in tried)]
        return {
            "summary": f"{right} of {len(ours)} of ours right (operator, algorithm, data type, layout)"
            + (f"; wrong or failing of torch's own: {len(native)}" if native else "")
            + (f"; not run: {', '.join(without)}" if without else ""),
            "failures": failures,
            "results": {"what": _KERNELS, "tried": tried, "not_supported": reasons, "torch_own_failures": native},
        }

    def demo(self) -> Part:
        """Train the demo."""
        facts = self._answer("demo", {"preset": self._preset, "rocm": self._rocm}, LIMITS_S["demo"])
        failures = []
        if not self._quick and not facts["map50"] >= LEAST_MAP50:  # a NaN is less
            failures.append(f"mAP50 is {facts['map50']:.3f} after the demo, at least {LEAST_MAP50} is due")
        return {
            "summary": f"mAP50 {facts['map50']:.3f} after {facts['epochs']} epochs; {facts['patched']}",
            "failures": failures,
            "results": facts,
        }

    def bench_train(self) -> Part:
        """Time steps, and once more without the vendor library where they fail with it: that is no fault of ours.

        MIOpen may also search and compile for many minutes where it has never run before.
        """
        batch, more = self.settings.preset.train.get("batch"), {"what": _GLANCE}
        if self._vendor_died:
            more["with_vendor_library"] = "left out: it has ended a process of the doctor"
        else:
            result = self._child("bench_train", {"batch": batch, "ways": None}, LIMITS_S["bench_train"] / 2)
            if not result.error:
                return {**result.answer, "results": {**result.answer["results"], **more}}
            more["with_vendor_library"] = result.error
        without = {"batch": batch, "ways": "vendor off,ours,ours lean"}
        answer = self._answer("bench_train", without, LIMITS_S["bench_train"] / 2)
        return {**answer, "results": {**answer["results"], **more}}

    def _answer(self, part: str, settings: dict[str, Any], limit_s: float) -> dict[str, Any]:
        result = self._child(part, settings, limit_s)
        if result.error:
            raise RuntimeError(result.error)
        return result.answer

    def _child(self, part: str, settings: dict[str, Any], limit_s: float) -> ChildResult:
        if self.is_held:
            return ChildResult(error=f"not run: a process that {UNKILLABLE} holds the device")
        folder = str(self._folder / part)
        given = {**settings, "part": part, "device": self._device, "quick": self._quick, "folder": folder}
        # The engines are tried even where they are switched off; nothing is downloaded.
        own = {"YOLO_ROCM": None, "YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": str(self._folder)}
        result = run_module("yolo_rocm.bench.certify_child", given, limit_s, {**self._environ, **own})
        self._hold(result.unkillable)
        return result

    def _hold(self, held: bool) -> None:
        self.is_held |= held and self._device == "cuda"


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


def _cleaned(value: Any) -> Any:
    """Return plain data for strangers: no names, secrets or paths in its texts, and numbers of six digits.

    Keys are words of this package and stay: somebody's user name may be one of them.
    """
    if isinstance(value, Mapping):
        return {str(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else without_paths(redact(str(value)))


@contextmanager
def _isolated() -> Iterator[Path]:
    """Use shipped presets and an empty cache, and yield a folder that goes at the end.

    Triton's interpreter is left out too: it computes on the CPU, whatever device was asked for.
    """
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-certify-", ignore_cleanup_errors=True) as folder:
        own = {"YOLO_ROCM_CONFIG": str(Path(folder, "config")), "YOLO_ROCM_CACHE": str(Path(folder, "cache"))}
        before = {name: os.environ.pop(name, None) for name in (PRESET_VARIABLE, "TRITON_INTERPRET", *own)}
        os.environ.update(own)
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
