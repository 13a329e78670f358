"""The convolutions of a session: what computes them, what they are reported by, and what was measured for them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from .. import ultralytics_hooks as hooks
from ..hardware import Machine
from ..preset.schema import Settings

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    from ..conv.patch import Patch
    from ..conv.report import ConvReport
    from ..diagnosis.vendor_health import Advice


class Convolutions:
    """One patch of the process's convolutions, kept with its plans from one run to the next."""

    def __init__(self, settings: Settings, machine: Machine) -> None:
        self._settings, self._machine = settings, machine
        self._patch: Patch | None = None

    @cached_property
    def _advice(self) -> Advice:
        """What the doctor's probes of this GPU and stack mean for the run."""
        from ..diagnosis.vendor_health import advise, memory_file, recall

        conv = self._settings.preset.conv
        explicit = "conv.vendor" in self._settings.explicit
        return advise(conv, recall(memory_file(self._machine, conv.devices[0])), explicit)

    @property
    def lines(self) -> Sequence[str]:
        """What the user is told about the vendor library."""
        return self._advice.lines

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were computed by; None before the first."""
        return None if self._patch is None else self._patch.report

    def renew(self) -> None:
        """Start a new report; plans are kept."""
        if self._patch is not None:
            self._patch = self._patch.renewed()

    @contextmanager
    def vendor_library(self) -> Iterator[None]:
        """Keep the vendor library off while the context is open, where preset or doctor say so: BatchNorm needs it."""
        from ..conv.backend_flags import vendor_off

        with ExitStack() as undo:
            for device in () if self._advice.vendor_library else self._settings.preset.conv.devices:
                undo.enter_context(vendor_off(device))
            yield

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Compute the process's convolutions by the preset while the context is open."""
        from ..conv.seam import installed

        if self._patch is None:
            self._patch = self._make()
        with installed(self._patch):
            yield

    def _make(self) -> Patch:
        import torch

        from ..conv.patch import Patch
        from ..conv.plan import Planner
        from ..diagnosis.probes import TORCH_NAMES

        conv, advice = self._settings.preset.conv, self._advice
        avoid = [getattr(torch, TORCH_NAMES[dtype]) for dtype in advice.conv_avoids]
        return Patch(conv.devices, Planner(conv.engine, advice.vendor_library, conv.memory_mb, avoid_vendor=avoid))

    def tune(self) -> None:
        """Measure the algorithms for every convolution seen so far; later runs on this device know the result."""
        wanted = self._settings.preset.conv.tune
        if self._patch is None or wanted == "off" or not self._patch.planner.tunable:
            return
        from ..conv.plan import DEFAULT_TUNE_SECONDS

        problems = [p for p in self._patch.report.served if wanted == "on" or p.device.startswith("cuda")]
        if not problems:
            return
        state = random.getstate()  # rich draws numbers when it is imported; the training must draw its own
        try:
            with hooks.progress_bar("measuring convolutions", DEFAULT_TUNE_SECONDS) as progress:
                timings = self._patch.planner.tune(problems, progress)
        finally:
            random.setstate(state)
        if timings:
            hooks.say(f"measured {len(timings)} convolutions, kept for later runs")
            self._patch.report.replan(self._patch.planner.plan)
