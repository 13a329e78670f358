"""One answer out of many findings: will training work, and if not, what is the one thing to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from ..hardware import Machine
from ..preset.schema import Preset
from ..preset.step import AUTO, CHANNELS_LAST, layout_of
from ..ultralytics_hooks.versions import behaves
from ..utils.switch import Switch
from .findings import Finding
from .outcome import DEATHS, ProbeOutcome
from .probes import COMPILED_WAYS

HEALTHY, PROBLEMS, CANNOT_RUN = 0, 1, 2
_NOTHING_RUNS = (
    *("torch-missing", "numpy-too-new", "opencv-too-old"),
    *("ultralytics-missing", "ultralytics-too-old", "ultralytics-lacks"),
)


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes:
        text: In one sentence.
        next: What to do, a command where there is one; empty where nothing has to be done.
        works: Whether training will work on the device as it is, settings of `next` included.
        preset: The preset it is about.
        code: Exit code of the command: 0 healthy, 1 problems, 2 nothing can run.
    """

    text: str
    next: str
    works: bool
    preset: str
    code: int


@dataclass(frozen=True)
class Setup:
    """Settings of a training, as far as probes can speak about them."""

    engine: str
    vendor_library: bool
    amp: bool
    channels_last: bool = False

    @classmethod
    def of(cls, preset: Preset, machine: Machine, device: str | None) -> Setup:
        """Take them from a preset, and from what Ultralytics does where the preset says nothing."""
        conv, train = preset.conv, preset.train
        gpu = device == "cuda"  # Ultralytics has neither AMP nor channels_last on a CPU
        layout = layout_of(preset)
        last = layout in (CHANNELS_LAST, AUTO)  # `auto` runs both
        if layout is None:
            last = machine.system != "windows" and behaves(machine.ultralytics, "channels_last by itself")
        return cls(conv.engine, conv.vendor == Switch.ON, gpu and bool(train.get("amp", True)), gpu and last)

    def groups(self) -> set[str]:
        """Return the probes that must be healthy, as beginnings of their names."""
        # Of several engines the first has to work: what the others cannot do falls to it.
        ways = f"conv/{self.engine.partition('+')[0]}", f"norm/{'vendor' if self.vendor_library else 'off'}"
        layouts = ("nchw", "nhwc") if self.channels_last else ("nchw",)
        return {"device", "gemm/fp32", *("/".join(parts) for parts in product(ways, self.dtypes, layouts))}

    @property
    def dtypes(self) -> tuple[str, ...]:
        """What it computes in."""
        return ("fp32", "fp16") if self.amp else ("fp32",)

    def fails_by(self, outcome: ProbeOutcome) -> bool:
        """Return whether a probe's outcome speaks against it.

        Of kernels that are compiled on the spot, as candidates among others, only a crash does: one that errs or does
        not compile is left out by the run itself, but one that ends the process takes the run with it.
        """
        if outcome.status == "ok":
            return False
        if f"{outcome.name}/".startswith(tuple(f"{group}/" for group in self.groups())):
            return True
        ways = [way for way in COMPILED_WAYS if self.engine == "auto" or way in self.engine.split("+")]
        tried = outcome.name.startswith(tuple(f"conv/{way}/{dtype}/" for way in ways for dtype in self.dtypes))
        return tried and outcome.status in DEATHS

    def works(self, outcomes: Iterable[ProbeOutcome]) -> bool:
        """Return whether every probe it needs gave a correct result; one that was not run is no reason against it."""
        return not any(self.fails_by(outcome) for outcome in outcomes)


def way_out(own: Setup, outcomes: Sequence[ProbeOutcome]) -> tuple[str, ...] | None:
    """Return the arguments with which training works: none, a few, or None where nothing works."""
    engines = ((own.engine, own.vendor_library), ("auto", False), ("gemm", False), ("aten", False))
    for (engine, vendor), amp, channels_last in product(engines, (own.amp, False), (own.channels_last, False)):
        # With auto, a vendor library that failed its probes is left out by itself.
        steered = vendor and (engine != "auto" or Setup("vendor", True, amp).works(outcomes))
        if Setup(engine, steered, amp, channels_last).works(outcomes):
            changed = {
                f"rocm.conv.engine={engine}": engine != own.engine,
                "rocm.conv.vendor=off": own.vendor_library and not vendor,
                "amp=False": own.amp and not amp,
                "channels_last=False": own.channels_last and not channels_last,
            }
            return tuple(argument for argument, needed in changed.items() if needed)
    return None


def what_blocks(findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding with which nothing can be trained, on whatever device."""
    return next((found for found in findings if found.severity == "error" and found.id in _NOTHING_RUNS), None)


def judge(
    machine: Machine,
    preset: str,
    setup: Setup,
    findings: Sequence[Finding],
    outcomes: Sequence[ProbeOutcome],
    device: str | None,
) -> Verdict:
    """Weigh everything.

    Args:
        machine: The machine.
        preset: Name of the preset that would be trained with.
        setup: What it amounts to.
        findings: All findings, gravest first.
        outcomes: Probes; empty where none were run.
        device: What was, or would have been, probed: `cuda`, `cpu`, or None where there is nothing.
    """

    def answer(text: str, next: str, code: int, works: bool = False) -> Verdict:
        return Verdict(text, next, works, preset, code)

    errors = [finding for finding in findings if finding.severity == "error"]
    blocked = what_blocks(findings)
    if blocked is not None:
        return answer(f"Nothing can be trained here: {_sentence(blocked)}", blocked.remedy, CANNOT_RUN)
    where = "" if device == "cuda" else "on the CPU "
    if device != "cuda" and machine.gpus and errors:
        return answer(f"Training would run on the CPU: {machine.no_gpu_reason}.", errors[0].remedy, PROBLEMS)
    arguments = way_out(setup, outcomes) if outcomes else ()
    if arguments is None and all(outcome.status in ("ok", "skipped") for outcome in outcomes):
        text = "The device gave correct results, but too slowly for all probes to be run."
        again = "Run yolo-rocm doctor again: compiled kernels are kept, so the second time is faster"
        return answer(text, again, PROBLEMS)
    if arguments is None:
        told = errors[0] if errors else None
        text = "Training on this device will not work" + (f": {_sentence(told)}" if told else ".")
        return answer(text, told.remedy if told else "yolo-rocm doctor --bundle report.md, and open an issue", PROBLEMS)
    static = [finding for finding in errors if not finding.id.startswith("probe-")]
    if static:
        text = f"Training {where}with preset {preset} is at risk: {_sentence(static[0])}"
        return answer(text, static[0].remedy, PROBLEMS)
    if arguments:
        text = f"Training {where}will work with preset {preset} and {' '.join(arguments)}."
        return answer(text, f"yolo-rocm train preset={preset} {' '.join(arguments)} ...", PROBLEMS, works=True)
    if not outcomes and device == "cuda":
        text = f"Nothing speaks against training with preset {preset}; the card itself was not probed."
        return answer(text, "yolo-rocm doctor, without --no-probes", HEALTHY, works=True)
    reason = f" on {machine.gpu}" if machine.gpu is not None else f": {machine.no_gpu_reason}" if where else ""
    return answer(f"Training {where}will work with preset {preset}{reason}.", "", HEALTHY, works=True)


def _sentence(finding: Finding) -> str:
    return f"{finding.finding.rstrip('.')}."
