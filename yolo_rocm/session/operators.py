"""The operators of a session: one patch of the process each, what is reported of it, and what is measured for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ..engines.names import VENDOR
from ..hardware import Machine
from ..preset.schema import Settings
from ..ultralytics_hooks.fused_blocks import fused_blocks
from ..ultralytics_hooks.log import progress_bar, say
from ..ultralytics_hooks.network_calls import lean_networks
from ..utils.switch import Switch

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    import torch

    from ..conv.patch import Patch
    from ..conv.report import ConvReport  # noqa: F401 - in quotes below
    from ..diagnosis.vendor_health import Advice
    from ..norm.patch import NormPatch
    from ..norm.report import NormReport  # noqa: F401 - in quotes below

PatchT = TypeVar("PatchT", bound=Any)  # its `planner` chooses algorithms, `renewed` returns it with an empty report
ReportT = TypeVar("ReportT")


class Operator(ABC, Generic[PatchT, ReportT]):
    """One patch of an operator, kept with its plans from one run to the next.

    The section `conv` of the preset decides for every operator: engine, devices, vendor library, workspace, measuring.

    Attributes:
        what: What it computes, in the plural.
        is_bypassed: Whether the operator is left to torch until `patched` ends.
    """

    what: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._patch: PatchT | None = None
        self._on = ExitStack()  # what keeps the patch on
        self.is_bypassed = False

    @property
    def report(self) -> ReportT | None:
        """What it was computed by in the newest run; None before the first."""
        return None if self._patch is None else self._patch.report

    @abstractmethod
    def _make(self) -> PatchT:
        """Return the patch that the preset wants."""

    @abstractmethod
    def _installed(self, patch: PatchT) -> AbstractContextManager[None]:
        """Put a patch on."""

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Compute the process's operator by the preset while the context is open."""
        if self._patch is None:
            self._patch = self._make()
        self.is_bypassed = False
        with ExitStack() as self._on:
            self._on.enter_context(self._installed(self._patch))
            yield

    def renew(self) -> None:
        """Start a new report; plans are kept."""
        if self._patch is not None:
            self._patch = self._patch.renewed()

    @contextmanager
    def unreported(self) -> Iterator[Callable[[], None]]:
        """Compute with the same plans, out of the report; yields what measures the algorithms for that."""
        if self._patch is None:
            yield lambda: None
            return
        patch = self._patch.renewed()
        with self._installed(patch):
            yield lambda: self._tune(patch)

    def restart_report(self) -> None:
        """Forget what the report has of the run so far: the model computes other shapes or layouts from now on."""
        if self._patch is not None:
            self._patch.report.restart()
            self._patch.planner.generation += 1  # routes hold entries of the report

    def tune(self) -> None:
        """Measure the algorithms for everything seen so far; later runs on this device know the result."""
        if self._patch is not None:
            self._tune(self._patch)

    def _tune(self, patch: PatchT) -> None:
        wanted = self._settings.preset.conv.tune
        if wanted == Switch.OFF or not patch.planner.tunable:
            return
        from ..data.seeding import generators_kept
        from ..engines.planner import DEFAULT_TUNE_SECONDS

        problems = [p for p in list(patch.report.served) if wanted == Switch.ON or p.device.startswith("cuda")]
        if not problems:
            return
        # The bar's library draws numbers when it is imported; the training must draw its own.
        with generators_kept(), progress_bar(f"measuring {self.what}", DEFAULT_TUNE_SECONDS) as progress:
            timings = patch.planner.tune(problems, progress)
        if timings:
            kept = ", kept for later runs" if patch.planner.keeps else ""
            say("tune.done", f"measured {len(timings)} {self.what}{kept}")
            patch.report.replan(patch.planner.plan)


class Convolutions(Operator["Patch", "ConvReport"]):
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
        explicit = self._settings.is_explicit("conv.vendor")
        return advise(conv, recall(memory_file(self._machine, conv.devices[0])), explicit)

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


class Normalisations(Operator["NormPatch", "NormReport"]):
    """One patch of the process's BatchNorm, kept with its plans from one run to the next."""

    what: ClassVar[str] = "normalisations"

    def __init__(self, settings: Settings, convolutions: Convolutions) -> None:
        super().__init__(settings)
        self._convolutions = convolutions

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
