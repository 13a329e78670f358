"""The convolutions of a session: what computes them, what they are reported by, and what was measured for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ..engines.names import VENDOR
from ..hardware import Machine
from ..preset.schema import Settings
from .operators import Operator

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    import torch

    from ..conv.patch import Patch
    from ..conv.report import ConvReport
    from ..diagnosis.vendor_health import Advice


class Convolutions(Operator["Patch"]):
    """One patch of the process's convolutions, kept with its plans from one run to the next."""

    what: ClassVar[str] = "convolutions"

    def __init__(self, settings: Settings, machine: Machine) -> None:
        super().__init__(settings)
        self._machine = machine

    @cached_property
    def advice(self) -> Advice:
        """What the doctor's probes of this GPU and stack mean for the run."""
        from ..diagnosis.vendor_health import advise, memory_file, recall

        conv = self._settings.preset.conv
        explicit = "conv.vendor" in self._settings.explicit
        return advise(conv, recall(memory_file(self._machine, conv.devices[0])), explicit)

    @property
    def lines(self) -> Sequence[str]:
        """What the user is told about the vendor library."""
        return self.advice.lines

    @property
    def are_the_vendors(self) -> bool:
        """Whether the vendor library computes everything, so that a seam has nothing to decide."""
        by_vendor = self._settings.preset.conv.engine == VENDOR
        return by_vendor and self.advice.vendor_library and not self.advice.conv_avoids

    def bypass_seam(self) -> None:
        """Leave convolutions to torch from now on where the vendor library computes everything.

        The report knows them by then, and a seam that decides nothing costs the host time in each of them.
        """
        if self.are_the_vendors:
            self._on.close()
            self.is_bypassed = True

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were computed by; None before the first."""
        return None if self._patch is None else self._patch.report

    @contextmanager
    def vendor_library(self) -> Iterator[None]:
        """Keep the vendor library off while the context is open, where preset or doctor say so: BatchNorm needs it."""
        from ..engines.backend_flags import vendor_off

        with ExitStack() as undo:
            for device in () if self.advice.vendor_library else self._settings.preset.conv.devices:
                undo.enter_context(vendor_off(device))
            yield

    def _installed(self, patch: Patch) -> AbstractContextManager[None]:
        from ..conv.seam import installed

        return installed(patch)

    @property
    def avoided(self) -> list[torch.dtype]:
        """Data types in which the vendor library is known to be unhealthy."""
        import torch

        from ..diagnosis.probes import TORCH_NAMES

        return [getattr(torch, TORCH_NAMES[dtype]) for dtype in self.advice.conv_avoids]

    def _make(self) -> Patch:
        from ..conv.patch import Patch
        from ..conv.plan import Planner

        conv, vendor = self._settings.preset.conv, self.advice.vendor_library
        return Patch(conv.devices, Planner(conv.engine, vendor, conv.memory_mb, avoid_vendor=self.avoided))

    @property
    def setting(self) -> str:
        """What decides how fast convolutions are, besides their shapes."""
        conv = self._settings.preset.conv
        vendor = "vendor library on" if self.advice.vendor_library else "vendor library off"
        return f"{conv.engine}, {vendor}, {conv.memory_mb} MB"
