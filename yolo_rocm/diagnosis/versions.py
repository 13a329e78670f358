"""What a question about a failure should name: versions, card, system and the variables that steer them, redacted."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .._version import __version__
from ..hardware import Machine
from ..preset.resolve import resolve
from .bundle import shown_variables
from .redaction import redact


def versions(machine: Machine, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return names and values in the order of a report.

    Args:
        machine: The machine to describe.
        environ: Environment variables; those of this process by default.
    """
    environ = os.environ if environ is None else environ
    build = f"ROCm {machine.hip}" if machine.hip else f"{machine.build} build"
    place = f" ({', '.join(machine.overlays[1:])})" if machine.overlays[1:] else ""
    found = {
        "yolo-rocm": __version__,
        "system": f"{machine.distribution or machine.system}{place}, kernel {machine.kernel or 'not known'}",
        "GPU": "; ".join(str(gpu) for gpu in machine.gpus) or "none found",
        "driver": machine.amdgpu
        or machine.nvidia
        or next((g.driver for g in machine.gpus if g.driver), None)
        or "none",
        "preset": resolve("auto", machine=machine).why.removeprefix("preset "),
        "Python": machine.python,
        "torch": f"{machine.torch}, {build}" if machine.torch else "not installed",
        "ultralytics": machine.ultralytics or "not installed",
        **machine.packages.versions(),
        "cores": str(machine.cores),
        "memory": f"{machine.ram_gb:.0f} GB" if machine.ram_gb else "not known",
    }
    told = {**found, **shown_variables(environ)}
    return {name: redact(value, environ) for name, value in told.items()}
