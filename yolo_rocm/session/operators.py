"""An operator in a session: one patch of the process, what is reported of it, and what is measured for it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ..preset.schema import Settings
from ..ultralytics_hooks.log import progress_bar, say
from ..utils.switch import Switch

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    from ..engines.planner import BasePlanner
    from ..engines.report import SeamReport


class _Patch(Protocol):
    """A patch of the engine room's, as far as it is known here."""

    @property
    def planner(self) -> BasePlanner[Any, Any]:
        """Chooses algorithms."""

    @property
    def report(self) -> SeamReport[Any, Any]:
        """What was computed how."""

    def renewed(self) -> Any:
        """Return the same patch with an empty report."""


PatchT = TypeVar("PatchT", bound=_Patch)


class Operator(ABC, Generic[PatchT]):
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
        patch: PatchT = self._patch.renewed()
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
        from ..engines.planner import DEFAULT_TUNE_SECONDS

        problems = [p for p in list(patch.report.served) if wanted == Switch.ON or p.device.startswith("cuda")]
        if not problems:
            return
        state = random.getstate()  # rich draws numbers when it is imported; the training must draw its own
        try:
            with progress_bar(f"measuring {self.what}", DEFAULT_TUNE_SECONDS) as progress:
                timings = patch.planner.tune(problems, progress)
        finally:
            random.setstate(state)
        if timings:
            say(
                "tune.done",
                f"measured {len(timings)} {self.what}{', kept for later runs' if patch.planner.keeps else ''}",
            )
            patch.report.replan(patch.planner.plan)
