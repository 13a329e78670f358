"""What Ultralytics' events mean to a session: a training taken over, followed and let go; a prediction."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from ..ultralytics_hooks import distributed, probes, trainers
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.probes import EVENTS
from ..utils.off_switch import enabled
from .arguments import add_to_trainer, check_amp, size_given_to
from .resumed_run import take_up
from .run import current, led
from .session import Session

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from .training import TrainingRun


class Events:
    """The callbacks of a session, named after the events they are for. They can be pickled."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._adds_arguments = False
        session.take_over = self.take_over

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the ranks of a distributed training, where all sessions are one."""
        return _arrive, (self.session,)

    def callbacks(self) -> dict[str, Callable[[Any], None]]:
        """Return the session as Ultralytics callbacks."""
        return {event: getattr(self, event) for event in EVENTS}

    def take_over(self, trainer: Any) -> None:
        """Take over a trainer that has not announced itself: ranks do not, and some get no callbacks."""
        for event, function in self.callbacks().items():
            if function not in trainer.callbacks[event]:
                trainer.add_callback(event, function)
        self.on_pretrain_routine_start(trainer)

    def on_pretrain_routine_start(self, trainer: Any) -> None:
        """Take a training over: its convolutions, its loaders, its arguments."""
        from .training import TrainingRun

        session = self.session
        if not enabled() or trainer in session.trainings:
            return
        if session.device is None or current() is None:  # no run has said it: it may be that of an earlier training
            session.device = trainer.args.device
        if not session.is_active:
            take_up(session, None, {"resume": trainer.args.resume})
            session.renew()
        if self._adds_arguments or not session.is_active:  # callbacks on their own; otherwise the call has them
            session.settings = session.settings.for_images(size_given_to(trainer))
            add_to_trainer(session.settings, trainer)
        check_amp(session.machine, trainer)
        training = TrainingRun(session, trainer)
        session.trainings[trainer] = training
        this = current()
        if this is not None and this.session is session:
            this.trainings.append(training)
        elif trainers.callbacks_fire_in_train():
            self._hold_late(trainer, training)
        else:
            trainer.train = led(session, trainer.train, training)
            # Some releases build the model, and run it once, between the trainer's making and its train().
            trainer.get_model = self._scoped(trainer.get_model)
            for name in ("train", "get_model"):
                training.hold(partial(vars(trainer).pop, name, None))

    def _hold_late(self, trainer: Any, training: TrainingRun) -> None:
        """Keep the session active for a training that has begun: nothing of it is left to wrap.

        Such releases run no teardown after an error; the trainer's own end is then the last chance to let go.
        """
        if not self.session.is_active:
            say(
                "callbacks.late",
                "callbacks alone hear of a training late with this Ultralytics: register() covers its start",
            )
        held = ExitStack()
        held.enter_context(self.session.active())
        training.hold(held.close)
        weakref.finalize(trainer, training.close)

    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Set up a training: clear away what an interrupted run left, and listen to its backward pass."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].is_set_up(trainer)

    def on_train_epoch_start(self, trainer: Any) -> None:
        """Begin to measure how long the epoch waits for data."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].epoch_starts(trainer)

    def on_train_batch_start(self, trainer: Any) -> None:
        """Attribute the convolutions of the first batch to layers."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].batch_starts(trainer)

    def on_train_batch_end(self, trainer: Any) -> None:
        """Log what was patched."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].batch_ends(trainer)

    def on_train_epoch_end(self, trainer: Any) -> None:
        """Say how long the epoch waited for data, and attribute the convolutions of the first validation to layers."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].epoch_trained(trainer)

    def on_fit_epoch_end(self, trainer: Any) -> None:
        """Stop to attribute convolutions to layers."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].epoch_validated(trainer)

    def on_train_end(self, trainer: Any) -> None:
        """Write `rocm.json` next to the results."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].finished(trainer)

    def teardown(self, trainer: Any) -> None:
        """Let go of a training."""
        if trainer in self.session.trainings:
            self.session.trainings[trainer].close()

    def on_predict_start(self, predictor: Any) -> None:
        """Run a predictor's warm-up and inference under the preset, where `register` does not do so already."""
        if not enabled() or self.session.is_active or getattr(predictor, "_yolo_rocm_scoped", False):
            return
        if probes.missing(probes.PREDICT_CALLBACKS):
            say(
                "callbacks.no_predictions",
                "callbacks alone do not reach predictions of this Ultralytics: use register()",
                warning=True,
            )
            return
        predictor._yolo_rocm_scoped = True
        predictor.inference = self._scoped(predictor.inference)
        object.__setattr__(predictor.model, "warmup", self._scoped(predictor.model.warmup))

    def _scoped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.session.active():
                return function(*args, **kwargs)

        return run


_resident: Events | None = None


def resident() -> Events | None:
    """Return the events of the session that leads this whole process, as one does in the ranks of a training."""
    return _resident


def lead_process(events: Events) -> None:
    """Let a session take the place of every session that travels to this process."""
    global _resident
    _resident = events


def _arrive(session: Session) -> Events:
    """Return the events of a session that was pickled, or of the one that leads this process.

    A process of Ultralytics' own launcher is led by the first session that arrives, until it ends: it may be any rank,
    and only rank 0 is told when its training begins.
    """
    if _resident is not None:
        return _resident
    events = Events(session)
    if distributed.runs_launched_file() and enabled():
        lead_process(events)
        held = ExitStack()
        held.enter_context(session.active())
        atexit.register(held.close)
        events._adds_arguments = True
    return events
