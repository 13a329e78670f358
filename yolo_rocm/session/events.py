"""What Ultralytics' events mean to a run: a training that begins, what follows of it, and a prediction."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from ..ultralytics_hooks import probes, trainers
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.probes import EVENTS
from ..utils.off_switch import enabled
from .arguments import add_to_trainer, check_amp
from .current_run import OngoingRun, current

if TYPE_CHECKING:  # they import torch, and a preset's variables come first
    from .training import Training


@dataclass(frozen=True)
class Callback:
    """What Ultralytics calls at an event. It can be pickled; in the ranks of a training it is of the run there.

    Attributes:
        run: Its run; one of the same session that is going on in this thread hears in its place.
        event: Ultralytics' name of the event.
    """

    run: OngoingRun
    event: str

    def __call__(self, sender: Any) -> None:
        """Pass an event on to the training it is of.

        Args:
            sender: The trainer, or the predictor.
        """
        this = current()
        run = this if this is not None and this.session is self.run.session else self.run
        if self.event == "on_pretrain_routine_start":
            _training_begins(run, sender)
        elif self.event == "on_predict_start":
            _prediction_begins(run, sender)
        elif (training := run.training_of(sender)) is not None:
            getattr(training, self.event)(sender)


def callbacks_of(run: OngoingRun) -> dict[str, Callable[[Any], None]]:
    """Return a run as Ultralytics callbacks, by event."""
    return {event: Callback(run, event) for event in EVENTS}


def hears(run: OngoingRun, functions: Iterable[Any]) -> bool:
    """Return whether a run hears of an event by one of its functions; those of callbacks alone pass events on to it."""
    return any(isinstance(each, Callback) and each.run.session is run.session for each in functions)


def on_trainer_created(run: OngoingRun, trainer: Any) -> None:
    """Follow a trainer that does not announce itself: ranks do not, and some get no callbacks."""
    callbacks = callbacks_of(run)
    for event, function in callbacks.items():
        if not hears(run, trainer.callbacks[event]):
            trainer.add_callback(event, function)
    callbacks["on_pretrain_routine_start"](trainer)


def _training_begins(run: OngoingRun, trainer: Any) -> None:
    """Follow a training. Where no run is going on around it, as with callbacks alone, its `train` becomes one."""
    from .training import Training

    if not enabled() or run.training_of(trainer) is not None:
        return
    is_inside = current() is run
    if run.awaits_trainer and not is_inside:
        run = run.of_trainer(trainer)
        add_to_trainer(run.settings, trainer)
    check_amp(run.session.machine, trainer)
    training = Training(run, trainer)
    run.trainings.append(training)
    if is_inside:
        return
    if trainers.callbacks_fire_in_train():
        _hold_late(run, trainer, training)
        return
    trainer.train = run.around(trainer.train)
    # Some releases build the model, and run it once, between the trainer's making and its train().
    trainer.get_model = _applied(run, trainer.get_model)
    for name in ("train", "get_model"):
        training.hold(partial(vars(trainer).pop, name, None))


def _hold_late(run: OngoingRun, trainer: Any, training: Training) -> None:
    """Keep the preset applied for a training that has begun: nothing of it is left to wrap.

    Such releases run no teardown after an error; the trainer's own end is then the last chance to let go.
    """
    if not run.session.is_active:
        say("callbacks.late", "this Ultralytics fires callbacks after set-up: register() covers that too")
    run.session.start_reports()
    held = ExitStack()
    held.enter_context(run.applied())
    training.hold(held.close)
    weakref.finalize(trainer, training.close)


def _prediction_begins(run: OngoingRun, predictor: Any) -> None:
    """Run a predictor's warm-up and inference under the preset, where no run does so already."""
    if not enabled() or run.session.is_active or getattr(predictor, "_yolo_rocm_scoped", False):
        return
    if probes.missing(probes.PREDICT_CALLBACKS):
        say("callbacks.no_predictions", "predictions of this Ultralytics need register()", warning=True)
        return
    predictor._yolo_rocm_scoped = True
    predictor.inference = _applied(run, predictor.inference)
    object.__setattr__(predictor.model, "warmup", _applied(run, predictor.model.warmup))


def _applied(run: OngoingRun, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with run.applied():
            return function(*args, **kwargs)

    return call
