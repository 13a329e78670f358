"""`yolo-rocm certify`: one command on an owner's card, one file that says what ran there and how well.

The parts follow each other; one that fails is recorded in full words, and the others still run. Everything that touches
the device does so in processes of their own.
"""

from __future__ import annotations

import datetime
import math
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .._version import __version__
from ..diagnosis.context import training_environment
from ..diagnosis.doctor import Diagnosis, doctor
from ..diagnosis.outcome import DEATHS, Limits, ProbeOutcome
from ..diagnosis.probe_runner import run_probes
from ..diagnosis.redaction import redact, without_paths
from ..engines.faults import in_one_line
from ..engines.names import NATIVE
from ..engines.qualification import ROUNDINGS
from ..engines.triton.available import installed_version
from ..errors import ConfigError
from ..hardware import Machine, detect
from ..preset.evidence import SCHEMA_VERSION, Certificate, seal
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..utils.progress import progress
from .certify_kernels import kernel_probes
from .certify_parts import STEPS, in_child

# Relative difference of a loss from that of torch's own kernels on the CPU: above what right kernels differ by, below
# what an error at the edge of images makes of it; see `certify_parts`.
MOST_DIFFERENCE: Final = 5e-3
# Kernels of a data type and layout are compiled together before the first of them is tried.
_KERNEL_LIMITS: Final = Limits(start=120.0, probe=60.0, compile=300.0, total=1200.0)
_MOST_DEATHS: Final = {"dtype": 4, "way": 8}  # of different algorithms: one that crashes says little about the next
_LIMIT_S: Final = 600.0
_Sizes = dict[str, dict[str, Any]]
_GPU_SIZES: Final[_Sizes] = {"conv": {"imgsz": 640, "layers": 4}, "train": {"imgsz": 640, "steps": 6, "tune_s": 15.0}}
_CPU_SIZES: Final[_Sizes] = {"conv": {"imgsz": 160, "layers": 4}, "train": {"imgsz": 160, "steps": 2, "tune_s": 0.0}}
_BATCHES: Final = {"cuda": 16, "cpu": 2}
_QUICK: Final[_Sizes] = {"conv": {"imgsz": 64, "layers": 2}, "train": {"imgsz": 64, "steps": 1, "tune_s": 0.0}}
_A_GLANCE: Final = "a glance, few layers or steps and small sizes: `yolo-rocm bench` measures"
Show = Callable[[int, int], None]


@dataclass
class PartOutcome:
    """What a part has found; it has passed where there are no failures."""

    summary: str
    failures: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)


class Certification:
    """The parts, on one device.

    Args:
        device: `cuda` or `cpu`; the GPU by default, where torch can use one.
        quick: Smallest sizes and fp32 alone: to try the command out. Its file is no evidence.
        machine: Facts to go by; those of this machine by default.
        kernels_command: The process that tries kernels; the package's own by default.

    Raises:
        ConfigError: `device` is neither.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        quick: bool = False,
        machine: Machine | None = None,
        kernels_command: list[str] | None = None,
    ) -> None:
        if device not in (None, "cuda", "cpu"):
            raise ConfigError(
                f"device must be 'cuda' or 'cpu', got {device!r}. 'cuda' is also torch's name for an AMD GPU."
            )
        self.machine = machine or detect()
        self.device = device or ("cuda" if self.machine.gpu is not None else "cpu")
        self.quick = quick
        own = [sys.executable, "-m", "yolo_rocm.bench.certify_kernels", "--device", self.device]
        self._kernels_command = kernels_command or own
        self.diagnosis: Diagnosis | None = None
        self.preset, self.rocm = self._what_trains()
        self.settings: Settings = resolve(self.preset, self.rocm, machine=self.machine)
        self._environ = training_environment(self.settings.preset, self.machine)

    @property
    def kind(self) -> str:
        """`amd`, `nvidia` or `cpu`."""
        return "cpu" if self.device == "cpu" else "amd" if self.machine.build == "hip" else "nvidia"

    def _what_trains(self) -> tuple[str, dict[str, Any]]:
        """Return the preset and what is over it: an AMD card's own; elsewhere one that uses our engines too."""
        conv: dict[str, Any] = {"tune": "off"}  # what is measured differs from time to time, and the rounding with it
        if self.kind == "cpu":
            return "cpu", {"conv": {**conv, "engine": "gemm", "devices": ["cpu"]}}
        return "auto" if self.kind == "amd" else "generic", {"conv": conv}

    def run(self) -> dict[str, Any]:
        """Run all parts and return the certificate, redacted and sealed."""
        started = time.monotonic()
        parts = {name: _tried(name, part) for name, part in self._parts().items()}
        failed = {name: part["failures"] for name, part in parts.items() if part["status"] == "failed"}
        conv = self.settings.preset.conv
        first = "; ".join(f"{name}: {failures[0]}" for name, failures in failed.items())
        told = f"{len(failed)} of {len(parts)} parts failed. {first}" if failed else "every part passed"
        data = {
            "schema_version": SCHEMA_VERSION,
            "card": {**cleaned(self._card()), "kind": self.kind},
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "parts": {name: {**cleaned(part), "status": part["status"]} for name, part in parts.items()},
            "preset": cleaned({"name": self.settings.preset.name, "engine": conv.engine, "vendor": conv.vendor}),
            "quick": self.quick,
            "seconds": cleaned(time.monotonic() - started),
            "stack": cleaned(self._stack()),
            "verdict": {
                "passed": not failed,
                "text": cleaned(f"{len(failed)} of {len(parts)} parts failed. {told}")
                if failed
                else "every part passed",
            },
        }
        sealed = seal(data)
        Certificate.model_validate(sealed)
        return sealed

    def _parts(self) -> dict[str, Callable[[Show], PartOutcome]]:
        return {
            "doctor": self._doctor,
            "kernels": self._kernels,
            "training": self._training,
            "bench_conv": self._bench_conv,
            "bench_train": self._bench_train,
        }

    def _doctor(self, show: Show) -> PartOutcome:
        found = self.diagnosis = doctor(device=self.device, machine=self.machine, progress=show)
        outcomes = found.outcomes
        right = sum(outcome.status == "ok" for outcome in outcomes)
        skipped = sum(outcome.status == "skipped" for outcome in outcomes)
        failures = [] if found.verdict.works else [found.verdict.text]
        if not outcomes:
            failures.append("the device was not probed")
        return PartOutcome(
            f"{right} of {len(outcomes)} probes right, {skipped} skipped. {found.verdict.text}",
            failures,
            {
                "verdict": found.verdict.text,
                "next": found.verdict.next,
                "findings": [f"{each.severity} {each.id}: {each.finding}" for each in found.findings],
                "probes": {each.name: _in_words(each) for each in outcomes},
                "details": {each.name: dict(each.detail) for each in outcomes if each.detail},
                "engine_triton": found.triton,
            },
        )

    def _kernels(self, show: Show) -> PartOutcome:
        probes = kernel_probes(self.quick)
        answers = run_probes(probes, self._kernels_command, _KERNEL_LIMITS, self._environ, show, _MOST_DEATHS)
        ours: list[str] = []
        native: list[str] = []
        for probe, outcome in zip(probes, answers.outcomes, strict=True):
            unanswered = outcome.status == "skipped" and outcome.seconds is None
            if unanswered or outcome.status not in ("ok", "skipped"):
                (native if probe.way in NATIVE else ours).append(f"{_short(outcome)}: {_in_words(outcome)}")
        right = [outcome for outcome in answers.outcomes if outcome.status == "ok"]
        passes = sum(int(outcome.detail.get("results", 0)) for outcome in right)
        if not right:
            ours.append("no kernel gave a right result")
        worst = max((outcome.error or 0.0 for outcome in right), default=0.0)
        return PartOutcome(
            f"{len(right)} of {len(right) + len(ours) + len(native)} right (algorithm, data type, layout), all their "
            f"{passes} results within {worst:.2f} of the allowed error"
            + (f"; {len(native)} of torch's own are wrong or fail" if native else ""),
            ours,
            {
                "allowed": "twice the error of torch's own kernel without vendor library, or of a plain sum of as many "
                f"terms; {ROUNDINGS} roundings where an algorithm pays speed with digits. Error and allowed are "
                "relative, against fp64 on the CPU, and those of the result that came nearest to the bound",
                "tried": {_short(each): _kernel_facts(each) for each in answers.outcomes if not _unsupported(each)},
                "not_supported": _by_reason(each for each in answers.outcomes if _unsupported(each)),
                "torch_own_failures": native,
            },
        )

    def _training(self, show: Show) -> PartOutcome:
        device = "0" if self.device == "cuda" else "cpu"
        settings = {"device": device, "preset": self.preset, "rocm": self.rocm}
        found = in_child("training", settings, self._environ, _LIMIT_S)
        pairs = list(zip(found["ours"], found["torch_cpu"], strict=True))
        apart = [abs(mine - other) / abs(other) for mine, other in pairs]
        largest = next((each for each in apart if math.isnan(each)), max(apart, default=math.nan))
        failures = []
        if len(pairs) != STEPS:
            failures.append(f"{len(pairs)} steps were trained, not {STEPS}")
        if not largest <= MOST_DIFFERENCE:
            failures.append(f"a loss differs by {largest:.1e} from that of torch's own kernels on the CPU")
        return PartOutcome(
            f"losses of {len(pairs)} steps differ by at most {largest:.1e} from those of torch's own kernels on the "
            f"CPU, {MOST_DIFFERENCE:.0e} is allowed",
            failures,
            {
                "model": "yolov8n.yaml",
                "losses": found["ours"],
                "losses_torch_cpu": found["torch_cpu"],
                "largest_relative_difference": largest,
                "allowed_relative_difference": MOST_DIFFERENCE,
                "computed_by": found["computed_by"],
            },
        )

    def _bench_conv(self, show: Show) -> PartOutcome:
        found = in_child("bench_conv", self._sizes("conv"), self._environ, _LIMIT_S)
        sums = {way: passes["sum"] for way, passes in found["totals_ms"].items()}
        told = ", ".join(f"{way} {ms:.2f} ms" for way, ms in sums.items())
        failures = [] if sums.get("auto") else ["ours has measured nothing"]
        return PartOutcome(told or "nothing measured", failures, {**found, "what": _A_GLANCE})

    def _bench_train(self, show: Show) -> PartOutcome:
        found = in_child("bench_train", self._sizes("train"), self._environ, _LIMIT_S)
        failures = found.pop("failures")
        return PartOutcome(found.pop("summary"), failures, {**found, "what": _A_GLANCE})

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

    def _card(self) -> dict[str, Any]:
        gpu, probed = self.machine.gpu, self._probed()
        if self.device == "cpu":
            return {"kind": "cpu", "name": f"CPU {platform.machine()}"}
        return {
            "kind": self.kind,
            "name": (gpu.name if gpu is not None else None) or (probed.get("name") if self.kind == "nvidia" else None),
            "gfx": gpu.gfx if gpu is not None else probed.get("gfx") or None,
            "presents_as": gpu.presents_as if gpu is not None else None,
            "memory_gb": (gpu.vram_gb if gpu is not None else None) or probed.get("memory_gb"),
            "integrated": gpu is not None and gpu.integrated,
        }

    def _stack(self) -> dict[str, Any]:
        machine = self.machine
        windows = machine.gpu.driver if machine.gpu is not None else None
        linux = machine.nvidia if self.kind == "nvidia" else machine.amdgpu if self.kind == "amd" else None
        return {
            **{name: getattr(machine, name) for name in ("system", "distribution", "python", "torch", "build")},
            **{name: getattr(machine, name) for name in ("hip", "rocm", "ultralytics")},
            "kernel": match.group() if (match := re.match(r"\d+(?:\.\d+)*", machine.kernel or "")) else None,
            "overlays": list(machine.overlays),
            "machine": platform.machine(),
            "driver": windows or linux,
            "cuda": self._probed().get("cuda"),
            "triton": installed_version() or "none",
            "yolo_rocm": __version__,
        }


def _tried(name: str, part: Callable[[Show], PartOutcome]) -> dict[str, Any]:
    """Run a part; whatever it raises is its failure."""
    started = time.monotonic()
    try:
        with progress(f"certifying, {name}") as show:
            outcome = part(show)
    except Exception as error:  # recorded, and the other parts still run
        words = in_one_line(error).removeprefix("PartError: ")
        outcome = PartOutcome(f"not finished: {words}", [words])
    return {
        "status": "failed" if outcome.failures else "passed",
        "summary": outcome.summary,
        "failures": outcome.failures,
        "seconds": time.monotonic() - started,
        "results": outcome.results,
    }


def _short(outcome: ProbeOutcome) -> str:
    return outcome.name.partition("/")[2]


def _unsupported(outcome: ProbeOutcome) -> bool:
    """Return whether the process itself has said that there is nothing to try."""
    return outcome.status == "skipped" and outcome.seconds is not None


def _in_words(outcome: ProbeOutcome) -> str:
    detail = outcome.detail
    if "allowed" in detail:
        numbers = f"error {detail['error']:.1e}, allowed {detail['allowed']:.1e}"
        return f"{outcome.status}, {detail['pass']} of {detail['problem']}: {numbers}"
    error = f" {outcome.error:.1e}" if outcome.error else ""
    return f"{outcome.status}{error}{', ' if outcome.message else ''}{outcome.message}"


def _kernel_facts(outcome: ProbeOutcome) -> dict[str, Any]:
    """Return where an algorithm came nearest to the bound, or what went wrong."""
    if outcome.status == "ok":
        keys = ("error", "allowed", "pass", "problem", "results")
        return {"status": "ok", **{key: outcome.detail[key] for key in keys}}
    return {"status": outcome.status, "words": _in_words(outcome)}


def _by_reason(outcomes: Iterable[ProbeOutcome]) -> list[dict[str, Any]]:
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.message, []).append(_short(outcome))
    return [{"reason": reason, "what": names} for reason, names in found.items()]


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
