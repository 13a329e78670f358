"""What became of a probe, and how long to wait for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .probes import DeviceProbe

Status = Literal["ok", "wrong", "nan", "error", "hang", "segfault", "abort", "signal", "no answer", "skipped"]
DEATHS: Final = ("hang", "segfault", "abort", "signal", "no answer")


@dataclass(frozen=True)
class ProbeOutcome:
    """What became of one probe.

    Attributes:
        name: The probe.
        status: `ok`; `wrong` or `nan` numbers; an `error` raised; the process in a `hang`, `segfault`, `abort` or ended
            by another `signal`; `no answer`; `skipped` after others of its kind had died.
        message: What there is to say beyond the status.
        error: Relative distance from the exact result; None where there is none or it is not finite.
        seconds: How long the answer took; None where the process gave none.
        detail: Further facts the probe found, such as the device's name.
    """

    name: str
    status: Status
    message: str = ""
    error: float | None = None
    seconds: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """How long to wait, in seconds.

    Attributes:
        start: For the child's first word; it imports torch before.
        probe: For the answer to one probe.
        compile: For the answer to one before which kernels may be compiled.
        total: For everything; what has not begun by then is skipped.
        end: For a killed process to vanish. One that the driver holds may never do so.
    """

    start: float = 60.0
    probe: float = 20.0
    compile: float = 45.0
    total: float = 360.0
    end: float = 5.0


def judged(probe: DeviceProbe, answer: dict[str, Any], seconds: float) -> ProbeOutcome:
    """Turn an answer into an outcome; the numbers are judged here, not by the child."""
    if "message" in answer:
        return ProbeOutcome(probe.name, "error", answer["message"], seconds=seconds)
    if "skipped" in answer:
        return ProbeOutcome(probe.name, "skipped", answer["skipped"], seconds=seconds)
    detail = answer.get("detail", {})
    error = float(answer["error"])
    if not math.isfinite(error):
        return ProbeOutcome(probe.name, "nan", "NaN or infinity in the result", None, seconds, detail)
    if error > probe.limit:
        message = f"relative error {error:.1e}, at most {probe.limit:.0e}"
        return ProbeOutcome(probe.name, "wrong", message, error, seconds, detail)
    return ProbeOutcome(probe.name, "ok", "", error, seconds, detail)
