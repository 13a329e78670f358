"""BatchNorm in a session: what computes it, alone or with the activation behind it, and what is kept for backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, ClassVar

from ..preset.schema import Settings
from ..ultralytics_hooks.fused_blocks import fused_blocks
from ..ultralytics_hooks.network_calls import lean_networks
from .convolutions import Convolutions
from .operators import Operator

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    from ..norm.patch import NormPatch
    from ..norm.report import NormReport


class Normalisations(Operator["NormPatch"]):
    """One patch of the process's BatchNorm, kept with its plans from one run to the next."""

    what: ClassVar[str] = "normalisations"

    def __init__(self, settings: Settings, convolutions: Convolutions) -> None:
        super().__init__(settings)
        self._convolutions = convolutions

    @property
    def report(self) -> NormReport | None:
        """What BatchNorm was computed by in the newest run; None before the first."""
        return None if self._patch is None else self._patch.report

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Compute the process's BatchNorm by the preset while the context is open; in blocks with their activation."""
        lean = self._settings.preset.step.memory == "lean"
        if self._convolutions.are_the_vendors and not lean:
            yield  # nothing is replaced, so nothing may cost time
            return
        with super().patched(), fused_blocks(), lean_networks() if lean else nullcontext():
            yield

    def _installed(self, patch: NormPatch) -> AbstractContextManager[None]:
        from ..norm.seam import installed

        return installed(patch)

    def _make(self) -> NormPatch:
        from ..norm.patch import NormPatch
        from ..norm.plan import NormPlanner

        conv = self._settings.preset.conv
        vendor = self._convolutions.advice.vendor_library
        return NormPatch(conv.devices, NormPlanner(conv.engine, vendor, conv.memory_mb))
