"""`yolo-rocm certify`: one command on an owner's card, one file that says what ran there and how well.

The parts follow each other; one that fails is recorded in full words, and the others still run. Everything that touches
the device does so in processes of their own.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..diagnosis.context import training_environment
from ..diagnosis.doctor import Diagnosis, doctor
from ..diagnosis.outcome import DEATHS, Limits
from ..diagnosis.probe_runner import run_probes
from ..errors import ConfigError
from ..hardware import Machine, detect
from ..preset.certificate import SCHEMA_VERSION, Certificate
from ..preset.evidence import seal
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..utils.child_process import UNKILLABLE
from ..utils.error_text import first_line, typed_line
from ..utils.progress import progress
from .certify_environment import own_variables
from .certify_facts import card_facts, cleaned, is_another_card, stack_facts
from .certify_outcomes import PartOutcome, doctor_outcome, kernels_outcome, training_outcome, unkillable
from .certify_parts import HeldError, PartError, in_child
from .certify_probes import KernelProbe

# Kernels of a data type and layout are compiled together before the first of them is tried.
_KERNEL_LIMITS: Final = Limits(start=120.0, probe=60.0, compile=300.0, total=1200.0)
_MOST_DEATHS: Final = {"dtype": 4, "way": 8}  # of different algorithms: one that crashes says little about the next
_LIMIT_S: Final = 600.0
_VENDOR_LIMIT_S: Final = 300.0
_NAMES_LIMIT_S: Final = 120.0
LIMITS_S: Final = {
    "doctor": Limits().total,
    "kernels": _NAMES_LIMIT_S + _KERNEL_LIMITS.total,
    "norms": _NAMES_LIMIT_S + _KERNEL_LIMITS.total,
    "training": _LIMIT_S,
    "bench_conv": _VENDOR_LIMIT_S + _LIMIT_S,
    "bench_train": _VENDOR_LIMIT_S + _LIMIT_S,
}
_Sizes = dict[str, dict[str, Any]]
_GPU_SIZES: Final[_Sizes] = {"conv": {"imgsz": 640, "layers": 4}, "train": {"imgsz": 640, "steps": 6, "tune_s": 15.0}}
_CPU_SIZES: Final[_Sizes] = {"conv": {"imgsz": 96, "layers": 4}, "train": {"imgsz": 96, "steps": 2, "tune_s": 0.0}}
_BATCHES: Final = {"cuda": 16, "cpu": 2}
_QUICK: Final[_Sizes] = {"conv": {"imgsz": 64, "layers": 2}, "train": {"imgsz": 64, "steps": 1, "tune_s": 0.0}}
_A_GLANCE: Final = "a glance, few layers or steps and small sizes: `yolo-rocm bench` measures"
_GPU_BUILDS: Final = ("hip", "cuda")
Show = Callable[[int, int], None]
Begin = Callable[[str, float], None]


class Certification:
    """The parts, on one device.

    Args:
        device: `cuda` or `cpu`; the GPU by default, where torch can use one.
        quick: Smallest sizes and fp32 alone: to try the command out. Its file is no evidence.
        machine: Facts to go by; those of this machine by default.
        kernels_command: The process that tries kernels of convolutions; the package's own by default.
        norms_command: The same for those of BatchNorm.

    Raises:
        ConfigError: `device` is neither, or the installed torch cannot use it.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        quick: bool = False,
        machine: Machine | None = None,
        kernels_command: list[str] | None = None,
        norms_command: list[str] | None = None,
    ) -> None:
        if device not in (None, "cuda", "cpu"):
            raise ConfigError(
                f"device must be 'cuda' or 'cpu', got {device!r}. 'cuda' is also torch's name for an AMD GPU."
            )
        self.machine = machine or detect()
        self.device = device or self._usual_device()
        if self.device == "cuda" and self.machine.build not in _GPU_BUILDS:
            have = f"is a {self.machine.build} build" if self.machine.build else "is missing"
            raise ConfigError(
                f"device 'cuda': the installed torch {have} and can use no GPU. `yolo-rocm doctor` says what to "
                "install; --device cpu certifies the processor."
            )
        self.quick = quick
        self._kernels_command = kernels_command or self._probing("certify_kernels")
        self._norms_command = norms_command or self._probing("certify_norms")
        self.diagnosis: Diagnosis | None = None
        self._held = False  # by a process that cannot be killed
        with own_variables():
            self.preset, self.rocm = self._what_trains()
            self.settings: Settings = resolve(self.preset, self.rocm, machine=self.machine)

    @property
    def _environ(self) -> dict[str, str]:
        """The variables of all processes that use the device."""
        return training_environment(self.settings.preset, self.machine)

    def _probing(self, module: str) -> list[str]:
        return [sys.executable, "-m", f"yolo_rocm.bench.{module}", "--device", self.device]

    def _usual_device(self) -> str:
        if self.machine.gpu is not None:
            return "cuda"
        if self.machine.build in _GPU_BUILDS:
            raise ConfigError(
                f"the installed torch is a {self.machine.build} build, but {self.machine.no_gpu_reason}. Pass "
                "--device cuda to certify the GPU that torch finds all the same, as in some containers, or --device "
                "cpu to certify the processor."
            )
        return "cpu"

    @property
    def kind(self) -> str:
        """`amd`, `nvidia` or `cpu`."""
        return "cpu" if self.device == "cpu" else "amd" if self.machine.build == "hip" else "nvidia"

    def _what_trains(self) -> tuple[str, dict[str, Any]]:
        """Return the preset and what is over it: an AMD card's own; elsewhere one that uses our engines too."""
        conv: dict[str, Any] = {"tune": "off"}  # what is measured differs from time to time, and the rounding with it
        if self.kind == "cpu":
            preset, conv = "cpu", {**conv, "engine": "gemm", "devices": ["cpu"]}
        else:  # the preset of a machine without GPU is that of its processor
            preset = "auto" if self.kind == "amd" and self.machine.gpu is not None else "generic"
        vendor = resolve(preset, {"conv": conv}, machine=self.machine).preset.conv.vendor
        # Said aloud, so that what the doctor learns of the vendor library does not turn it on for the training.
        return preset, {"conv": {**conv, "vendor": vendor}}

    def run(self, begin: Begin = lambda part, limit_s: None) -> dict[str, Any]:
        """Run all parts and return the certificate, redacted and sealed.

        Args:
            begin: Called with the name of each part that begins, and how many seconds it takes at most.
        """
        with own_variables():
            return self._certificate(begin)

    def _certificate(self, begin: Begin) -> dict[str, Any]:
        started = time.monotonic()
        parts = {}
        for name, part in self._parts().items():
            begin(name, LIMITS_S[name])
            parts[name] = _tried(name, _not_run if self._held else part)
        failed = {name: part["failures"] for name, part in parts.items() if part["status"] == "failed"}
        conv, probed = self.settings.preset.conv, self._probed()
        card = card_facts(self.machine, self.kind, probed, self._environ)
        first = "; ".join(f"{name}: {failures[0]}" for name, failures in failed.items())
        told = f"{len(failed)} of {len(parts)} parts failed. {first}" if failed else "every part passed"
        data = {
            "schema_version": SCHEMA_VERSION,
            "card": {**cleaned(card), "kind": self.kind},
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "parts": {name: {**cleaned(part), "status": part["status"]} for name, part in parts.items()},
            # Of closed lists: an owner who is called like a preset must not lose it.
            "preset": {"name": self.settings.preset.name, "engine": conv.engine, "vendor": conv.vendor},
            "quick": self.quick,
            "seconds": cleaned(time.monotonic() - started),
            "stack": cleaned(stack_facts(self.machine, self.kind, probed)),
            "verdict": {"passed": not failed, "text": cleaned(told)},
        }
        sealed = seal(data)
        Certificate.model_validate(sealed)
        return sealed

    def _parts(self) -> dict[str, Callable[[Show], PartOutcome]]:
        return {
            "doctor": self._doctor,
            "kernels": self._kernels,
            "norms": self._norms,
            "training": self._training,
            "bench_conv": self._bench_conv,
            "bench_train": self._bench_train,
        }

    def _doctor(self, show: Show) -> PartOutcome:
        found = self.diagnosis = doctor(device=self.device, machine=self.machine, progress=show)
        self._hold(unkillable(found.outcomes))
        outcome, probed = doctor_outcome(found), self._probed()
        if self.device == "cuda" and is_another_card(self.machine, probed, self._environ):
            first = " ".join(str(word) for word in (probed.get("name"), probed.get("gfx")) if word)
            outcome.failures.append(
                f"torch's first GPU is {first}, and not {self.machine.gpu}, whose preset this is: set "
                f"{'HIP' if self.kind == 'amd' else 'CUDA'}_VISIBLE_DEVICES to the number of the card to certify, and "
                "run it again"
            )
        return outcome

    def _kernels(self, show: Show) -> PartOutcome:
        return self._against_fp64("kernel_names", self._kernels_command, show)

    def _norms(self, show: Show) -> PartOutcome:
        return self._against_fp64("norm_names", self._norms_command, show)

    def _against_fp64(self, names: str, command: list[str], show: Show) -> PartOutcome:
        known = self._in_child(names, {"quick": self.quick}, _NAMES_LIMIT_S)
        probes = [KernelProbe(*fields) for fields in known["probes"]]
        answers = run_probes(probes, command, _KERNEL_LIMITS, self._environ, show, _MOST_DEATHS)
        self._hold(unkillable(answers.outcomes))
        return kernels_outcome(probes, answers.outcomes, known["allowed"])

    def _training(self, show: Show) -> PartOutcome:
        device = "0" if self.device == "cuda" else "cpu"
        settings = {"device": device, "preset": self.preset, "rocm": self.rocm}
        return training_outcome(self._in_child("training", settings, _LIMIT_S))

    def _bench_conv(self, show: Show) -> PartOutcome:
        found = self._measured("bench_conv", self._sizes("conv"))
        sums = {way: passes["sum"] for way, passes in found["totals_ms"].items()}
        told = ", ".join(f"{way} {ms:.2f} ms" for way, ms in sums.items())
        failures = [] if sums.get("auto") else ["ours has measured nothing"]
        return PartOutcome(told or "nothing measured", failures, {**found, "what": _A_GLANCE})

    def _bench_train(self, show: Show) -> PartOutcome:
        found = self._measured("bench_train", self._sizes("train"))
        failures = found.pop("failures")
        return PartOutcome(found.pop("summary"), failures, {**found, "what": _A_GLANCE})

    def _measured(self, part: str, sizes: dict[str, Any]) -> dict[str, Any]:
        """Run a benchmark, and once more without the vendor library where it fails with it: that is no fault of ours.

        MIOpen may also search and compile for many minutes where it has never run before.
        """
        if sizes["vendor"]:
            try:
                return self._in_child(part, sizes, _VENDOR_LIMIT_S)
            except PartError as error:
                if self._held:
                    raise
                failed = {"with_vendor_library": str(error)}
        else:
            failed = {"with_vendor_library": "left out: it has ended a process of the doctor"}
        return {**self._in_child(part, {**sizes, "vendor": False}, _LIMIT_S), **failed}

    def _in_child(self, part: str, settings: dict[str, Any], limit_s: float) -> dict[str, Any]:
        try:
            return in_child(part, settings, self._environ, limit_s)
        except HeldError:
            self._hold(True)
            raise

    def _hold(self, held: bool) -> None:
        """Note whether the GPU is held: whatever else would use it would hang too."""
        self._held |= held and self.device == "cuda"

    def _sizes(self, part: str) -> dict[str, Any]:
        """Return what a benchmark is run with; a vendor library that ended a probe's process stays out of it."""
        sizes = (_QUICK if self.quick else _GPU_SIZES if self.device == "cuda" else _CPU_SIZES)[part]
        batch = self.settings.preset.train.get("batch")
        most = 2 if self.quick else _BATCHES[self.device]
        outcomes = self.diagnosis.outcomes if self.diagnosis is not None else ()
        died = any(each.status in DEATHS and "/vendor/" in each.name for each in outcomes)
        batch = min(batch, most) if isinstance(batch, int) else most
        return {"device": self.device, "batch": batch, **sizes, "vendor": not died}

    def _probed(self) -> Mapping[str, Any]:
        """Return what the device has said of itself."""
        outcomes = self.diagnosis.outcomes if self.diagnosis is not None else ()
        return next((each.detail for each in outcomes if each.name == "device"), {})


def _not_run(show: Show) -> PartOutcome:
    raise PartError(f"not run: a process that {UNKILLABLE} holds the device")


def _tried(name: str, part: Callable[[Show], PartOutcome]) -> dict[str, Any]:
    """Run a part; whatever it raises is its failure."""
    started = time.monotonic()
    try:
        with progress(f"certifying, {name}") as show:
            outcome = part(show)
    except Exception as error:  # recorded, and the other parts still run
        words = first_line(error) if isinstance(error, PartError) else typed_line(error)
        outcome = PartOutcome(f"not finished: {words}", [words])
    return {
        "status": "failed" if outcome.failures else "passed",
        "summary": outcome.summary,
        "failures": outcome.failures,
        "seconds": time.monotonic() - started,
        "results": outcome.results,
    }
