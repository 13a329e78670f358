"""The answer of a doctor, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        id: Stable name.
        severity: `error`: training on the GPU fails or gives wrong numbers; `warning`: it may, or costs much; `info`:
            good to know.
        finding: What was found here.
        remedy: What to do about it.
        sources: Where that is known from.
    """

    id: str
    severity: Severity
    finding: str
    remedy: str
    sources: tuple[str, ...] = ()
