"""What Ultralytics' events mean to a session: a training taken over, accompanied and let go."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from ..ultralytics_hooks.probes import EVENTS
from ..utils.off_switch import enabled

if TYPE_CHECKING:
    from ..data.reader import Trace
    from .session import Session
    from .training import TrainingRun


class TrainingEvents:
    """The half of a session that listens. Its functions are named after the events they are for.

    Attributes:
        device: Ultralytics' `device` argument of the run.
    """

    device: Any
    _runs: weakref.WeakKeyDictionary[Any, TrainingRun]

    if TYPE_CHECKING:  # the other half

        def active(self) -> AbstractContextManager[None]:
            """See `Session`."""

        @property
        def is_active(self) -> bool:
            """See `Session`."""

    def take_over(self, trainer: Any) -> None:
        """Take over a trainer that has not announced itself: ranks do not, and some get no callbacks."""
        for event, function in self.callbacks().items():
            if function not in trainer.callbacks[event]:
                trainer.add_callback(event, function)
        self.on_pretrain_routine_start(trainer)

    def _observe(self, kind: str, trace: Trace, asked: float, got: float) -> None:
        for run in list(self._runs.values()):
            run.meter.observe(kind, trace, asked, got)

    def callbacks(self) -> dict[str, Callable[[Any], None]]:
        """Return the session as Ultralytics callbacks."""
        return {event: getattr(self, event) for event in EVENTS}

    def on_pretrain_routine_start(self, trainer: Any) -> None:
        """Take a training over: its convolutions, its loaders, its arguments."""
        from .training import TrainingRun

        if enabled() and trainer not in self._runs:
            if self.device is None:
                self.device = trainer.args.device
            self._runs[trainer] = TrainingRun(cast("Session", self), trainer)

    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Let a resumed training go on exactly where it was, and listen to its backward pass."""
        if trainer in self._runs:
            self._runs[trainer].is_set_up()

    def on_train_epoch_start(self, trainer: Any) -> None:
        """Begin to measure how long the epoch waits for data."""
        if trainer in self._runs:
            self._runs[trainer].epoch_starts()

    def on_train_batch_start(self, trainer: Any) -> None:
        """Attribute the convolutions of the first batch to layers."""
        if trainer in self._runs:
            self._runs[trainer].batch_starts()

    def on_train_batch_end(self, trainer: Any) -> None:
        """Log what was patched."""
        if trainer in self._runs:
            self._runs[trainer].batch_ends()

    def on_train_epoch_end(self, trainer: Any) -> None:
        """Say how long the epoch waited for data, and attribute the convolutions of the first validation to layers."""
        if trainer in self._runs:
            self._runs[trainer].epoch_trained()

    def on_fit_epoch_end(self, trainer: Any) -> None:
        """Stop to attribute convolutions to layers."""
        if trainer in self._runs:
            self._runs[trainer].epoch_validated()

    def on_train_end(self, trainer: Any) -> None:
        """Write `rocm.json` beside the results."""
        if trainer in self._runs:
            self._runs[trainer].write_report()

    def teardown(self, trainer: Any) -> None:
        """Let go of a training."""
        if trainer in self._runs:
            self._runs.pop(trainer).close()

    def on_predict_start(self, predictor: Any) -> None:
        """Run a predictor's warm-up and inference under the preset, where `register` does not do so already."""
        if not enabled() or self.is_active or getattr(predictor, "_yolo_rocm_scoped", False):
            return
        from .. import ultralytics_hooks as hooks

        if hooks.missing(hooks.PREDICT_CALLBACKS):
            hooks.say("callbacks alone do not reach predictions of this Ultralytics: use register()", warning=True)
            return
        predictor._yolo_rocm_scoped = True
        predictor.inference = self._scoped(predictor.inference)
        object.__setattr__(predictor.model, "warmup", self._scoped(predictor.model.warmup))

    def _scoped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.active():
                return function(*args, **kwargs)

        return run
