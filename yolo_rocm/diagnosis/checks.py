"""All checks that need no card: each looks at a `Context` and finds something or nothing."""

from __future__ import annotations

from typing import Final

from . import checks_environment, checks_packages, checks_stack, checks_system
from .context import Context
from .findings import ORDER, Check, Finding

CHECKS: Final[tuple[Check, ...]] = (
    *checks_packages.CHECKS,
    *checks_stack.CHECKS,
    *checks_system.CHECKS,
    *checks_environment.CHECKS,
)


def run_checks(context: Context) -> list[Finding]:
    """Return what the checks find, gravest first, in the order of what has to be repaired first."""
    found = [finding for check in CHECKS if (finding := _look(check, context)) is not None]
    return sorted(found, key=lambda finding: ORDER[finding.severity])


def _look(check: Check, context: Context) -> Finding | None:
    """Run one check; one that fails on a machine nobody thought of must not take the others with it."""
    try:
        return check(context)
    except Exception as error:
        name = getattr(check, "__name__", str(check)).replace("_", "-")
        remedy = "It is a fault of yolo-rocm: please report it with `yolo-rocm doctor --bundle report.md`"
        return Finding("check-failed", "warning", f"the check {name} failed: {type(error).__name__}: {error}", remedy)
