"""What the parts of a certification have found: judged, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..diagnosis.doctor import Diagnosis
from ..diagnosis.outcome import ProbeOutcome
from ..diagnosis.probes import LONG_ROWS, DeviceProbe
from ..engines.names import NATIVE
from ..utils.child_process import UNKILLABLE
from .certify_parts import STEPS

# Relative difference of a loss from that of torch's own kernels on the CPU: above what right kernels differ by, below
# what an error at the edge of images makes of it; see `certify_parts`.
MOST_DIFFERENCE: Final = 5e-3


@dataclass
class PartOutcome:
    """What a part has found; it has passed where there are no failures."""

    summary: str
    failures: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)


def unkillable(outcomes: Iterable[ProbeOutcome]) -> bool:
    """Return whether a process that cannot be killed holds the device."""
    return any(UNKILLABLE in outcome.message for outcome in outcomes)


def doctor_outcome(found: Diagnosis) -> PartOutcome:
    """Judge the doctor's probes: training has to work, by whatever settings the doctor has found."""
    outcomes = found.outcomes
    right = sum(outcome.status == "ok" for outcome in outcomes)
    skipped = sum(outcome.status == "skipped" for outcome in outcomes)
    failures = [] if found.verdict.works else [found.verdict.text]
    if not outcomes:
        failures.append("the device was not probed")
    # Our own products are cut, so a training works all the same.
    long = [each for each in outcomes if each.name.startswith("long_gemm/") and each.status not in ("ok", "skipped")]
    wrong = "".join(
        f"; torch's own product of {LONG_ROWS:,} rows fails ({_short(each)}: {_in_words(each)})" for each in long
    )
    return PartOutcome(
        f"{right} of {len(outcomes)} probes right, {skipped} skipped{wrong}. {found.verdict.text}",
        failures,
        {
            "verdict": found.verdict.text,
            "next": found.verdict.next,
            "findings": [f"{each.severity} {each.id}: {each.finding}" for each in found.findings],
            "probes": {each.name: _in_words(each) for each in outcomes},
            "details": {each.name: dict(each.detail) for each in outcomes if each.detail},
            "engine_triton": found.triton,
            "engine_hip": found.hip,
        },
    )


def kernels_outcome(probes: Sequence[DeviceProbe], outcomes: Sequence[ProbeOutcome], allowed: str) -> PartOutcome:
    """Judge the kernels: all of ours have to be right; what torch's own fail in is recorded.

    Args:
        probes: What was asked.
        outcomes: What became of each.
        allowed: What error is allowed, in words.
    """
    ours: list[str] = []
    native: list[str] = []
    for probe, outcome in zip(probes, outcomes, strict=True):
        unanswered = outcome.status == "skipped" and outcome.seconds is None
        if unanswered or outcome.status not in ("ok", "skipped"):
            (native if probe.way in NATIVE else ours).append(f"{_short(outcome)}: {_in_words(outcome)}")
    triton = [outcome for probe, outcome in zip(probes, outcomes, strict=True) if probe.way == "triton"]
    pairs = zip(probes, outcomes, strict=True)
    right = [outcome for probe, outcome in pairs if outcome.status == "ok" and probe.way not in NATIVE]
    results = sum(int(outcome.detail["results"]) for outcome in right)
    worst = max((outcome.error or 0.0 for outcome in right), default=0.0)
    tried = len(right) + len(ours)
    if not right:
        ours.append("no kernel of ours gave a right result")
    return PartOutcome(
        f"{len(right)} of {tried} of ours right (algorithm, data type, layout), all their {results} results within "
        f"{worst:.2f} of the allowed error"
        + (f"; wrong or failing of torch's own: {len(native)}" if native else "")
        + ("; Triton not run" if all(map(_unsupported, triton)) else ""),
        ours,
        {
            "allowed": f"{allowed}. Error and allowed are relative, against fp64 on the CPU, and those of the result "
            "that came nearest to the bound",
            "tried": {_short(each): _kernel_facts(each) for each in outcomes if not _unsupported(each)},
            "not_supported": _by_reason(each for each in outcomes if _unsupported(each)),
            "torch_own_failures": native,
        },
    )


def training_outcome(found: Mapping[str, Any]) -> PartOutcome:
    """Compare the losses of a training with those of the reference."""
    pairs = list(zip(found["ours"], found["torch_cpu"], strict=True))
    apart = [abs(mine - other) / abs(other) for mine, other in pairs]
    largest = next((each for each in apart if math.isnan(each)), max(apart, default=math.nan))
    failures = []
    if len(pairs) != STEPS:
        failures.append(f"{len(pairs)} steps were trained, not {STEPS}")
    if not largest <= MOST_DIFFERENCE:
        failures.append(f"a loss differs by {largest:.1e} from that of torch's own kernels on the CPU")
    if not found["shapes_of_ours"]:
        failures.append(f"no convolution was computed by an engine of ours: {found['computed_by']}")
    if not found["norms_computed_by"]:
        failures.append("no BatchNorm of the training was met")
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
            "shapes_of_ours": found["shapes_of_ours"],
            "norms_computed_by": found["norms_computed_by"],
        },
    )


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
        keys = ("error", "allowed", "pass", "problem", "results", "qualified")
        return {"status": "ok", **{key: outcome.detail[key] for key in keys if key in outcome.detail}}
    return {"status": outcome.status, "words": _in_words(outcome)}


def _by_reason(outcomes: Iterable[ProbeOutcome]) -> list[dict[str, Any]]:
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.message, []).append(_short(outcome))
    return [{"reason": reason, "what": names} for reason, names in found.items()]
