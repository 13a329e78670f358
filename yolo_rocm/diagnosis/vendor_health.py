"""What the probes learned about the vendor library, kept per GPU and software stack, and what `auto` makes of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from ..engines.names import single_engines
from ..hardware import OVERRIDE, Machine
from ..preset.schema import Conv
from ..utils.atomic import write_file
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.log_lines import log
from ..utils.paths import cache_folder
from ..utils.switch import Switch
from .outcome import DEATHS, ProbeOutcome
from .probes import DTYPES

_LOCK_SECONDS: Final = 10.0
# What a training runs in: AMP of Ultralytics is fp16 on a GPU and off on a CPU.
_TRAINS_IN: Final = {"cuda": ("fp32", "fp16"), "cpu": ("fp32",)}


@dataclass(frozen=True)
class Health:
    """Whether the vendor library gave correct results to the probes.

    Attributes:
        conv: By dtype; one that was not probed is not there.
        norm: The same for BatchNorm.
        when: Day of the probes.
        path: File it was read from.
    """

    conv: Mapping[str, bool] = field(default_factory=dict)
    norm: Mapping[str, bool] = field(default_factory=dict)
    when: str = ""
    path: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, outcomes: Iterable[ProbeOutcome]) -> Health:
        """Sum up probes: a dtype is healthy where every probe of it gave a correct result.

        One that was skipped is not known, unless it was skipped because others of its kind ended the process.
        """
        told: dict[str, dict[str, bool]] = {"conv": {}, "norm": {}}
        named = [(outcome, outcome.name.split("/")) for outcome in outcomes]
        vendors = [(outcome, words[0], words[2]) for outcome, words in named if words[1:2] == ["vendor"]]
        deadly = {kind for outcome, kind, _ in vendors if outcome.status in DEATHS}
        for outcome, kind, dtype in vendors:
            if outcome.status != "skipped" or kind in deadly:
                told[kind][dtype] = told[kind].get(dtype, True) and outcome.status == "ok"
        today = datetime.now(timezone.utc).date().isoformat()
        return cls(told["conv"], told["norm"], today)

    @property
    def known(self) -> bool:
        """Whether anything was learned."""
        return bool(self.conv or self.norm)


def memory_file(machine: Machine, device: str = "cuda", environ: Mapping[str, str] | None = None) -> Path:
    """Return the file for this GPU and stack; what an override makes of the card is another card."""
    environ = os.environ if environ is None else environ
    gpu = machine.gpu if device == "cuda" else None
    parts = [device, machine.system, f"torch{machine.torch}", machine.build, machine.hip]
    if gpu is not None:
        memory = f"{gpu.vram_gb:.0f}GB" if gpu.vram_gb else None
        override = environ.get(f"{OVERRIDE}_{gpu.node}") or environ.get(OVERRIDE)
        parts[1:1] = [gpu.vendor, gpu.gfx, gpu.name, memory, f"as{override}" if override else None]
    name = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", str(part)) for part in parts if part)
    return cache_folder() / f"health-{name}.json"


def remember(health: Health, path: Path) -> None:
    """Keep what was learned; a folder that cannot be written costs a log line and nothing else."""
    data = {name: getattr(health, name) for name in ("conv", "norm", "when")}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(f"{path}.lock", _LOCK_SECONDS):
            write_file(path, json.dumps(data, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        log("doctor.not_kept", "what the probes found cannot be kept in %s (%s)", path, error)


def recall(path: Path) -> Health | None:
    """Return what was learned before, or None."""
    try:
        data: Any = read_json(path)
        conv, norm = (
            {dtype: healthy for dtype, healthy in data[kind].items() if dtype in DTYPES and isinstance(healthy, bool)}
            for kind in ("conv", "norm")
        )
        return Health(conv, norm, str(data["when"]), path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log(
            "doctor.unreadable",
            "what the probes found in %s cannot be read (%s); run `yolo-rocm doctor` again",
            path,
            error,
        )
        return None


@dataclass(frozen=True)
class Advice:
    """What a run makes of the memory.

    Attributes:
        vendor_library: Whether it is on for the run: a candidate for `auto`, and what computes BatchNorm.
        conv_avoids: Dtypes in which it must not compute convolutions.
        lines: What to tell the user.
    """

    vendor_library: bool
    conv_avoids: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


def advise(conv: Conv, health: Health | None, explicit: bool = False) -> Advice:
    """Steer `engine: auto` by what was learned; an engine chosen by name only gets a warning.

    Args:
        conv: Section of the preset.
        health: What was learned.
        explicit: Whether the user has set `conv.vendor`; the memory never turns on what they have turned off.
    """
    on, auto = conv.vendor == Switch.ON, conv.engine == "auto"
    if health is None or not health.known:
        return Advice(on)
    trains_in = _TRAINS_IN[conv.devices[0]]
    norm = tuple(dtype for dtype in trains_in if health.norm.get(dtype) is False)
    sick = tuple(dtype for dtype in DTYPES if health.conv.get(dtype) is False)
    learned = f"(`yolo-rocm doctor`, {health.when}, {health.path})"
    if not on:
        proven = all(health.conv.get(dtype) and health.norm.get(dtype) for dtype in trains_in)
        if not auto or explicit or not proven:
            return Advice(False)
        line = "the vendor library passed its probes here, so auto may use it; rocm.conv.vendor=off keeps it out"
        return Advice(True, sick, (f"{line} {learned}",))
    if not norm and (not sick or "vendor" not in single_engines(conv.engine)):
        return Advice(True)
    failed = (("BatchNorm", norm), ("convolution", sick))
    found = ", and of ".join(f"{what} in {' and '.join(dtypes)}" for what, dtypes in failed if dtypes)
    if auto:
        way = "it is off for this run" if norm else "auto does without it there"
        return Advice(not norm, sick, (f"the vendor library failed its probes of {found}: {way} {learned}",))
    setting = "engine=auto" if "vendor" in single_engines(conv.engine) else "vendor=off"
    return Advice(
        True, lines=(f"the vendor library failed its probes of {found}; rocm.conv.{setting} avoids it {learned}",)
    )
