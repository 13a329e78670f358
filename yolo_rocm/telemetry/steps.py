"""Which training steps have their convolutions timed: a few at the start, then one every tenth epoch."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..conv.report import ConvReport

# In the first steps memory is allocated, kernels are compiled and algorithms measured.
WARM: Final = 5
_FIRST: Final = frozenset({WARM, WARM + 1, WARM + 2})
# Kept only where a training ends before it is warm.
_SPARE: Final = frozenset({2, 3})
_EVERY_EPOCHS: Final = 10
_BATCH_OF_EPOCH: Final = 2  # the first waits for workers


class SampledSteps:
    """Counts steps and lets a report time some of them. One for each training.

    Args:
        wanted: False never samples.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._wanted = wanted
        self._step = self._batch = self._epochs = 0
        self._report: ConvReport | None = None
        self._naming = ExitStack()

    def epoch_starts(self) -> None:
        """Count an epoch."""
        self._epochs += 1
        self._batch = 0

    def batch_starts(self) -> bool:
        """Count a step and return whether it is to be timed: `begin` then has to follow."""
        self.abandon()  # the step before, if it ended in an error
        self._step += 1
        self._batch += 1
        if self._step <= max(_FIRST):
            return self._wanted and self._step in _FIRST | _SPARE
        return self._wanted and self._epochs % _EVERY_EPOCHS == 0 and self._batch == _BATCH_OF_EPOCH

    def begin(self, report: ConvReport, model: Any | None, device: Any) -> None:
        """Time the convolutions from now on.

        Args:
            report: What the seam fills.
            model: The model whose layers are named; None to go by shapes alone.
            device: The torch device of the training.
        """
        from ..conv.step_timer import StepTimer

        if model is not None:
            self._naming.enter_context(report.naming(model))
        self._report = report
        report.times.warm_from = WARM
        report.timer = StepTimer(self._step, device)

    def batch_ends(self) -> None:
        """End the step that is being timed; what the GPU has finished by now is read."""
        report = self._report
        if report is None or report.timer is None:
            return
        timer = report.timer
        timer.end()
        self.abandon()
        report.times.take(timer)

    def abandon(self) -> None:
        """Stop timing; what the step has shown so far is dropped."""
        self._naming.close()
        report, self._report = self._report, None
        if report is not None:
            report.timer = None
