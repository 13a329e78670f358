"""All checks that need no card: each looks at a `Patient` and finds something or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import checks_environment, checks_packages, checks_stack, checks_system
from .context import Patient
from .findings import ORDER, Finding

Check = Callable[[Patient], Finding | None]
CHECKS: Final[tuple[Check, ...]] = (
    *checks_packages.CHECKS,
    *checks_stack.CHECKS,
    *checks_system.CHECKS,
    *checks_environment.CHECKS,
)


def run_checks(patient: Patient) -> list[Finding]:
    """Return what the checks find, gravest first, in the order of what has to be repaired first."""
    found = [finding for check in CHECKS if (finding := _look(check, patient)) is not None]
    return sorted(found, key=lambda finding: ORDER[finding.severity])


def _look(check: Check, patient: Patient) -> Finding | None:
    """Run one check; one that fails on a machine nobody thought of must not take the others with it."""
    try:
        return check(patient)
    except Exception as error:
        name = check.__name__.replace("_", "-")
        remedy = "It is a fault of yolo-rocm: please report it with `yolo-rocm doctor --bundle report.md`"
        return Finding("check-failed", "warning", f"the check {name} failed: {type(error).__name__}: {error}", remedy)
