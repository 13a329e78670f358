"""The whole examination: machine, checks, probes, memory, verdict; as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..engines.hip.available import in_words_unasked as hip_unasked
from ..engines.triton.available import in_words_unasked as triton_unasked
from ..errors import ConfigError
from ..hardware import Machine, detect
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..ultralytics_hooks import versions
from . import vendor_health as memory
from .checks import run_checks
from .context import Context, import_error, training_environment
from .findings import ORDER, Finding, Severity
from .known_failures import LEVELS, FailureMatch, read_text
from .outcome import ProbeOutcome
from .probe_runner import Answers, child_command, run_probes
from .probes import LONG_ROWS, all_probes
from .vendor_health import Health
from .verdict import Setup, Verdict, judge, what_blocks

SCHEMA: Final = 1
_KINDS: Final = {
    "device": "the device",
    "gemm": "matrix products",
    "long_gemm": f"matrix products of {LONG_ROWS:,} rows",
    "pinned": "pinned memory",
    "norm": "BatchNorm",
    "conv": "convolutions",
}
_WAYS: Final = {"": "", "vendor": "by the vendor library", "off": "by torch's own kernels"}
# What to do where a probe failed, by kind/way/dtype: the first pattern that fits.
_REMEDIES: Final = {
    "*/vendor/*": "Leave the vendor library out: rocm.conv.vendor=off rocm.conv.engine=auto",
    "device/*": 'Repair what the checks found; then `python -c "import torch; print(torch.cuda.is_available())"`',
    "gemm/*": "Install a build of torch with rocBLAS kernels for the card; engines need them too",
    "long_gemm/*": "Engines of this package cut such products; rocm.conv.engine=gemm leaves torch's own kernels out",
    "pinned/*": "rocm.loader.pin_memory=false, and HSA_ENABLE_SDMA=0 is worth a try where copies hang",
    "*/triton/*": "Leave Triton out: rocm.conv.engine=gemm",
    "*/hip/*": "Leave these kernels out: rocm.conv.engine=gemm",
    "*/?*16": "Train without AMP: amp=False",
    "*/auto/*": "Take another engine: rocm.conv.engine=gemm",
    "*": "Take another engine: rocm.conv.engine=auto",
}
_FACTS: Final = ("system", "kernel", "distribution", "python", "torch", "build", "hip", "rocm", "amdgpu")
_GPU_FACTS: Final = ("vendor", "gfx", "presents_as", "vram_gb", "integrated", "hidden_by")


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes:
        verdict: The answer in one sentence, and the one thing to do next.
        findings: Everything found, gravest first.
        outcomes: The probes of the device; empty where there were none.
        health: What was learned about the vendor library.
        machine: What it was found on.
        settings: The preset with the origin of every value.
        output: The end of what the probing processes printed.
        triton: Whether the engine `triton` is a candidate on the device: Triton's version, or why it is not.
        hip: Whether the engine `hip` is: what compiles its kernels, or why it is not.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    outcomes: tuple[ProbeOutcome, ...]
    health: Health
    machine: Machine
    settings: Settings
    output: str = ""
    triton: str = ""
    hip: str = ""

    def __repr__(self) -> str:
        advice = f" Next: {self.verdict.next}" if self.verdict.next else ""
        return f"<Diagnosis: {self.verdict.text}{advice} Everything: as_dict()>"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data; the shape is stable within one `schema`."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "verdict": dataclasses.asdict(self.verdict),
            "machine": machine_facts(self.machine),
            "preset": self.settings.as_dict(),
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "probes": [dataclasses.asdict(outcome) for outcome in self.outcomes],
            "vendor": {"conv": dict(self.health.conv), "norm": dict(self.health.norm)},
            "triton": self.triton,
            "hip": self.hip,
        }


def doctor(
    preset: str | Path | Mapping[str, Any] = "auto",
    *,
    probes: bool = True,
    device: str | None = None,
    machine: Machine | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Examine this machine, and what a training with a preset would meet on it.

    Nothing is changed but one file in the cache folder, which remembers how healthy the vendor library is. The device
    is probed in separate processes: nothing it does can hang or crash the caller.

    Args:
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        probes: Whether to probe the device.
        device: `cuda`, or `cpu` to probe that; by default the GPU, and nothing where torch cannot use one.
        machine: Facts to go by; those of this machine by default.
        command: The probing process; the package's own by default.
        progress: Called with (probes answered, all probes) after each answer.

    Raises:
        ConfigError: `device` is neither `cuda` nor `cpu`.
        PresetError: There is no such preset, or something in it is wrong.
    """
    if device not in (None, "cuda", "cpu"):
        raise ConfigError(
            f"device must be 'cuda' or 'cpu', got {device!r}. 'cuda' is also torch's name for an AMD GPU."
        )
    machine = machine or detect()
    settings = resolve(preset, machine=machine)
    environ = training_environment(settings.preset, machine)
    device = device or ("cuda" if machine.gpu is not None else None)
    path = memory.memory_file(machine, device or "cpu", environ)
    lacks = versions.lacks(machine.ultralytics, ask=probes and machine.torch is not None)
    opencv = import_error("cv2") if probes else ""
    context = Context(machine, settings.preset, environ, Path.home(), lacks, opencv)
    findings = run_checks(context)
    answers = Answers()
    if probes and device is not None and what_blocks(findings) is None:
        answers = run_probes(all_probes(), command or child_command(device), env=environ, progress=progress)
    outcomes = tuple(o for o in answers.outcomes if device == "cuda" or o.name != "pinned")
    learned = Health.of(outcomes)
    if learned.known:
        memory.remember(learned, path)
    gfx = machine.gpu.gfx if machine.gpu is not None else None
    setup = Setup.of(settings.preset, machine, device)
    findings = sorted(
        [*findings, *probe_findings(outcomes, setup, answers.output, gfx)], key=lambda f: ORDER[f.severity]
    )
    verdict = judge(machine, settings.preset.name, setup, findings, outcomes, device)
    told = {name: str(words) for outcome in outcomes for name, words in outcome.detail.items()}
    triton = told.get("triton", triton_unasked(machine.torch))
    skipped = (o.message for o in outcomes if o.name.startswith("conv/hip/") and o.status == "skipped")
    hip = told.get("hip_engine") or next(skipped, hip_unasked(machine.torch))
    return Diagnosis(verdict, tuple(findings), outcomes, learned, machine, settings, answers.output, triton, hip)


def probe_findings(
    outcomes: Iterable[ProbeOutcome], setup: Setup, output: str = "", gfx: str | None = None
) -> list[Finding]:
    """Return one finding for each group of probes that failed; grave where training would rely on it.

    Args:
        outcomes: The probes.
        setup: What training would rely on.
        output: What was printed besides: MIOpen raises a bare status and prints the reason.
        gfx: Target of the card.
    """
    by_name = {probe.name: probe for probe in all_probes()}
    failed: dict[tuple[str, str, str], list[ProbeOutcome]] = {}
    for outcome in outcomes:
        if outcome.status not in ("ok", "skipped"):
            probe = by_name[outcome.name]
            failed.setdefault((probe.kind, probe.way, probe.dtype), []).append(outcome)
    findings = []
    for (kind, way, dtype), group in failed.items():
        remedy = next(told for fits, told in _REMEDIES.items() if fnmatch(f"{kind}/{way}/{dtype}", fits))
        named = (_KINDS.get(kind, kind), _WAYS.get(way, f"by engine {way}"), f"in {dtype}" if dtype else "")
        parts = [f"{o.name + ': ' if '/' in o.name else ''}{o.status}, {o.message}" for o in group]
        more = f" (and {len(group) - 2} more)" if len(group) > 2 else ""
        library = way == "vendor" or kind in ("device", "gemm", "long_gemm")
        known = _known("\n".join(parts), output if library else "")
        used = any(map(setup.fails_by, group))
        severity: Severity = "error" if used else "warning" if kind in ("device", "long_gemm", "pinned") else "info"
        findings.append(
            Finding(
                f"probe-{'-'.join(part for part in (kind, way, dtype) if part)}",
                severity,
                f"{' '.join(word for word in named if word)} failed: {'; '.join(parts[:2])}{more}"
                + (f". {known.signature.cause}" if known else ""),
                known.remedy(gfx) if known and known.signature.level == "cause" else remedy,
                known.signature.sources if known else (),
            )
        )
    return findings


def _known(message: str, output: str) -> FailureMatch | None:
    """Return the most specific known failure, from the message itself before anything printed elsewhere."""
    found = [match for text in (message, output) for match in read_text(text) if match.signature.level != "note"]
    return min(found, key=lambda match: LEVELS.index(match.signature.level), default=None)


def machine_facts(machine: Machine) -> dict[str, Any]:
    """Return what a machine is as plain data."""
    sizes = {"ram_gb": machine.ram_gb, "shm_gb": machine.shm_gb}
    return {
        **{name: getattr(machine, name) for name in _FACTS},
        "overlays": list(machine.overlays),
        "ultralytics": machine.ultralytics,
        "packages": machine.packages.versions(),
        "gpus": [{"name": str(gpu), **{name: getattr(gpu, name) for name in _GPU_FACTS}} for gpu in machine.gpus],
        "cores": machine.cores,
        **{name: None if size is None else round(size, 2) for name, size in sizes.items()},
        "archs": list(machine.archs),
        "rocblas_archs": list(machine.rocblas_archs),
    }
