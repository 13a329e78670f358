"""Which training steps are timed: a few at the start, then some every tenth epoch."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from .classes import OPTIMIZER
from .medians import Medians

if TYPE_CHECKING:
    from ..conv.report import ConvReport
    from .class_timer import ClassTimer
    from .launch_timer import LaunchTimer
    from .places import Watch

LAYERS, LAUNCH = "layers", "launch"
# In the first steps memory is allocated, kernels are compiled and algorithms measured.
WARM: Final = 5
_FIRST: Final = frozenset({WARM, WARM + 1, WARM + 2})
# Steps that are like all others: layers that are watched take the host longer.
_LAUNCHED: Final = frozenset({WARM + 3, WARM + 4, WARM + 5})
# Kept only where a training ends before it is warm.
_SPARE: Final = frozenset({2, 3})
_EVERY_EPOCHS: Final = 10
_BATCHES_OF_EPOCH: Final = {2: LAYERS, 3: LAUNCH}  # the first waits for workers


class SampledSteps:
    """Counts steps, and times layers, classes of operators, or the host's launches in some. One for each training.

    Args:
        wanted: False never samples.

    Attributes:
        batch: Number of the newest step in its epoch, from 1.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._wanted = wanted
        self._step = self.batch = self._epochs = 0
        self._report: ConvReport | None = None
        self._classes: ClassTimer | None = None
        self._launch: LaunchTimer | None = None
        self._watched = ExitStack()
        self._by_class, self._by_launch = Medians(), Medians()

    @property
    def layers_are_known(self) -> bool:
        """Whether the first steps whose layers are timed are over, or none is."""
        return not self._wanted or self._step >= max(_FIRST)

    @property
    def is_last_cold(self) -> bool:
        """Whether the newest step is the last of its training in which memory is allocated and kernels are compiled.

        A later epoch's is not: shorter epochs than that have no others.
        """
        return self._step == self.batch == WARM - 1

    def epoch_starts(self) -> None:
        """Count an epoch."""
        self._epochs += 1
        self.batch = 0

    def batch_starts(self) -> str:
        """Count a step and return what of it is to be timed, for which `begin` or `begin_launch` has to follow."""
        self.abandon()  # the step before, if it ended in an error
        self._step += 1
        self.batch += 1
        if not self._wanted:
            return ""
        if self._step <= max(_LAUNCHED):
            return LAYERS if self._step in _FIRST | _SPARE else LAUNCH if self._step in _LAUNCHED else ""
        return _BATCHES_OF_EPOCH.get(self.batch, "") if self._epochs % _EVERY_EPOCHS == 0 else ""

    def begin(self, report: ConvReport, model: Any | None, device: Any, watch: Watch | None = None) -> None:
        """Time the convolutions from now on, and where the step can be watched all classes of operators.

        Args:
            report: What the seam fills.
            model: The model whose layers are named; None to go by shapes alone.
            device: The torch device of the training.
            watch: Tells where the step is.
        """
        from ..conv.step_timer import StepTimer
        from .class_timer import ClassTimer

        if model is not None:
            self._watched.enter_context(report.naming(model))
        self._report = report
        report.times.warm_from = WARM
        report.timer = StepTimer(self._step, device)
        if model is not None and watch is not None:
            self._watched.enter_context(watch(self._reached))
            self._classes = ClassTimer(model, device)
            self._classes.begin()

    def begin_launch(self, device: Any, watch: Watch) -> None:
        """Time how long the host takes to launch the step from now on, where it launches anything."""
        if device.type != "cuda":
            return
        from .launch_timer import LaunchTimer

        self._watched.enter_context(watch(self._reached))
        self._launch = LaunchTimer(device)
        self._launch.reached()

    def _reached(self, place: str, value: Any) -> None:
        classes, launch = self._classes, self._launch
        try:
            if launch is not None:
                launch.reached()
            if classes is not None:
                classes.reached(place, value)
        except Exception:  # a training is worth more than its report
            self._classes = self._launch = None
            if classes is not None:
                classes.abandon()

    def batch_ends(self) -> None:
        """End the step that is being timed; what the GPU has finished by now is read."""
        report, classes, launch = self._report, self._classes, self._launch
        timer = None if report is None else report.timer
        if timer is not None:
            timer.end()
        if classes is not None:
            classes.end()
        self.abandon()
        if report is not None and timer is not None:
            report.times.take(timer)
        if classes is not None:
            self._by_class.take(self._step, classes)
        if launch is not None:
            self._by_launch.take(self._step, launch)

    def abandon(self) -> None:
        """Stop timing; what the step has shown so far is dropped."""
        self._watched.close()
        classes, self._classes, self._launch = self._classes, None, None
        if classes is not None:
            classes.abandon()
        report, self._report = self._report, None
        if report is not None:
            report.timer = None

    def facts(self, accumulate: int = 1) -> dict[str, Any]:
        """Return what sampled steps have shown besides their layers; what was not measured is missing.

        Args:
            accumulate: Steps for each of the optimizer's, whose time is divided among them.
        """
        classes = self._by_class.of(WARM)
        if OPTIMIZER in classes:  # it may have made no step in those that were sampled
            classes[OPTIMIZER] /= max(1, accumulate)
        found: dict[str, Any] = {"classes_ms": _rounded(classes)} if classes else {}
        return {**found, **_rounded(self._by_launch.of(WARM))}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
