"""One way through a run: every train, val, predict and tune, from whichever way in, begins and ends here.

A run begins in this order:

1. Its arguments are settled: device, workers, and the preset's batch for its images.
2. SIGTERM and SIGHUP are made to end it like Ctrl-C does (trainings only).
3. The preset is applied (`applied`): environment, check of versions, then the session becomes active: opening lines,
   vendor library, hooks, convolutions, BatchNorm (`Session.active`); loaders follow the run.
4. The run is at work in this thread (`at_work`). A run of the same session inside it, as from a callback, has its own
   arguments and the trainings of the outer one; whoever wraps every YOLO object of the process leaves it alone.
5. Processes that Ultralytics starts follow the session.

It ends in this order, also after an error, Ctrl-C, SIGTERM and SIGHUP:

1. What has ended it is said, once, and a training that has begun leaves its page. Ctrl-C and these signals: which
   checkpoint is whole and how to go on. An error of ours: nothing here, it speaks for itself, and the folder of a run
   without results is removed. A full disk: a `CheckpointError` in its place. Any other error: its diagnosis, by the
   outermost run, where it is a known failure.
2. Trainings that it began are let go: telemetry ends, trainers get their methods back, their folders are the user's.
3. Child processes, mark and session are given back in reverse; torch and Ultralytics are as they were.
4. A process that got SIGTERM or SIGHUP dies of it.
"""

from __future__ import annotations

import atexit
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import YoloRocmError
from ..ultralytics_hooks import checkpoints, children, distributed, loaders, probes, ranks, versions
from ..ultralytics_hooks.log import say
from ..utils.atomic import no_room
from ..utils.off_switch import enabled
from . import sigterm
from .arguments import given_by_user, size_given_to, size_of_images, train_arguments
from .current_run import CURRENT, OngoingRun, current
from .events import callbacks_of, hears, on_trainer_created
from .failures import is_lost_rank, say_diagnosis
from .given import RunCommand, describe, run_command, with_resumed_preset
from .loading import loader_policy

if TYPE_CHECKING:  # training imports torch, and a preset's variables come first
    from ..data.policy import LoaderPolicy
    from .session import Session
    from .training import Training


class Run:
    """One call of a mode, or one training that a trainer of the user's begins: what it was given, what belongs to it.

    Args:
        session: The preset and its operators.
        arguments: Ultralytics' arguments of the call; None where a trainer is going to have them, as with callbacks
            alone.
        yolo: The YOLO object of the call; one that was loaded from a checkpoint has a size of images.
        outer: The run of the same session that this one is part of.

    Attributes:
        session: As given.
        device: Ultralytics' `device` argument.
        workers: Its `workers`, where the user has given them.
        settings: Those of the session, with the batch for the images of this run.
        trainings: Those it has begun, or the run it is part of; the newest last.
        awaits_trainer: It is that of callbacks alone: each trainer that they are given to begins a run of its own.
    """

    def __init__(
        self,
        session: Session,
        arguments: Mapping[str, Any] | None = None,
        yolo: Any = None,
        outer: OngoingRun | None = None,
    ) -> None:
        given = given_by_user(arguments or {})
        self.session = session
        self.awaits_trainer = arguments is None
        self.device: Any = given.get("device", outer and outer.device)
        self.workers: int | None = given.get("workers", outer and outer.workers)
        self.settings = session.settings.for_images(size_of_images(session.settings, given, yolo))
        self.trainings: list[Training] = [] if outer is None else outer.trainings
        self._of_trainers: list[Run] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the ranks of a distributed training, where all runs are one."""
        return _arrive, (self.session, {"device": self.device, "workers": self.workers}, self.awaits_trainer)

    def of_trainer(self, trainer: Any) -> Run:
        """Begin a run with a trainer, which has its arguments; one that resumes brings its preset."""
        given = {"device": trainer.args.device, "imgsz": size_given_to(trainer)}
        session, resumed = with_resumed_preset(self.session, None, {**given, "resume": trainer.args.resume})
        this = Run(session, {**given, "workers": resumed.get("workers")})
        self._of_trainers = [*(run for run in self._of_trainers if run.open_trainings), this]
        return this

    def command(self, device: Any = None) -> RunCommand:
        """Return the run as the command line has it; `device` is that of its trainer where the call has named none."""
        launched = None if distributed.runs_launched_file() else ranks.place_of_rank()
        device = device if self.device is None else self.device
        return run_command(self.session.source, self.session.rocm, device, self.workers, launched)

    @property
    def open_trainings(self) -> list[Training]:
        """Those that are going on."""
        return [training for training in self.trainings if training.is_open]

    def on_trainer_created(self, trainer: Any) -> None:
        """Follow a trainer that does not announce itself."""
        on_trainer_created(self, trainer)

    def loader_policy(self) -> LoaderPolicy:
        """Return how the loaders of this run load."""
        return loader_policy(self)

    def training_of(self, trainer: Any) -> Training | None:
        """Return what is held of a trainer; None where it is not of this run, or has been let go."""
        trainings = (training for run in (self, *self._of_trainers) for training in run.trainings)
        return next((training for training in trainings if training.is_of(trainer)), None)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the preset to this process: its environment first, as importing torch may be when that is read."""
        with self.session.environment(self.device) as late:
            versions.require()
            with self.session.active(self, late), loaders.loaders_follow(self.loader_policy()):
                yield

    @contextmanager
    def lifetime(self, *, trains: bool = False) -> Iterator[Run]:
        """Run what is in this context, from the beginning of the run to its end.

        Args:
            trains: Whether it is a training, which SIGTERM and SIGHUP end in order.
        """
        self.session.start_reports()
        with sigterm.orderly_end() if trains else nullcontext(), self.applied():
            try:
                with self.at_work(), children.children_follow(describe(self)):
                    yield self
            finally:
                self._let_go()
                self.trainings.clear()

    def around(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """Return a trainer's `train` with the run around it; for trainers that no run has made."""

        def run_it(*args: Any, **kwargs: Any) -> Any:
            with self.lifetime(trains=True):
                return train(*args, **kwargs)

        return run_it

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Take what is computed in this context, in this thread, for part of the run; say what ends it."""
        outermost = current() is None
        token = CURRENT.set(self)
        try:
            yield
        except BaseException as error:
            refusal = self._ended_by(error, outermost)
            if refusal is not None and refusal is not error:
                raise refusal from error
            raise
        finally:
            CURRENT.reset(token)

    def _ended_by(self, error: BaseException, outermost: bool) -> YoloRocmError | None:
        """Say what has ended the run; return the error of ours that it is, or that takes its place."""
        if isinstance(error, KeyboardInterrupt | sigterm.Terminated):
            for training in reversed(self.trainings):
                training.say_stopped(error, newest=training is self.trainings[-1])
        if not isinstance(error, Exception):
            return None
        for training in self.trainings:
            training.leave_page()
        refusal = error if isinstance(error, YoloRocmError) else self._refusal_of(error)
        if refusal is not None:
            self._let_go()  # telemetry writes into the folder
            for training in self.trainings if ranks.is_main_rank() else ():
                checkpoints.discard_run_folder(training.folder)
        elif outermost:
            say_diagnosis(error)
        return refusal

    def _refusal_of(self, error: Exception) -> YoloRocmError | None:
        """Return what a training raises in the place of a full disk, and of another rank's end."""
        if self.trainings and isinstance(error, OSError) and no_room(error):
            return self.trainings[-1].checkpoints.no_room(error)
        return self.trainings[-1].checkpoints.lost_rank(error) if self.trainings and is_lost_rank(error) else None

    def _let_go(self) -> None:
        """Close the trainings: older Ultralytics runs no teardown after an error."""
        with ExitStack() as ends:  # all of them, also if one fails
            for training in self.trainings:
                ends.callback(training.close)

    def stream(self, results: Any) -> Iterator[Any]:
        """Compute the items of a stream under the preset, which stays applied from the first item to the last.

        A stream that is closed or forgotten gives everything back then. What the caller does between two items is not
        part of the run.
        """
        with self.applied(), closing(results):
            while True:
                with self.at_work():
                    try:
                        item = next(results)
                    except StopIteration:
                        return
                yield item


def _arrive(session: Session, arguments: Mapping[str, Any], awaits_trainer: bool) -> Run:
    """Return a run that was pickled; in a process of Ultralytics' own launcher the one that is going on there.

    Callbacks alone get there without another: it goes on until the process ends, as only rank 0 hears of its training.
    """
    if not distributed.runs_launched_file() or not enabled():
        return Run(session, None if awaits_trainer else arguments)
    this = current()
    if not isinstance(this, Run):
        held = ExitStack()
        this = held.enter_context(Run(session, arguments).lifetime())
        atexit.register(held.close)
    return this


@contextmanager
def run(session: Session, arguments: Mapping[str, Any], *, trains: bool = False, yolo: Any = None) -> Iterator[Run]:
    """Run what is in this context under a session, as a run of its own or as part of the one that is going on.

    Args:
        session: The session.
        arguments: Those of the call.
        trains: Whether it is a training, which SIGTERM and SIGHUP end in order.
        yolo: The YOLO object of the call.
    """
    outer = current()
    if not enabled():
        versions.require()
        yield Run(session, arguments, yolo)
    elif outer is None or outer.session is not session:
        with Run(session, arguments, yolo).lifetime(trains=trains) as this:
            yield this
    else:
        this = Run(session, arguments, yolo, outer)
        token = CURRENT.set(this)
        try:
            yield this
        finally:
            CURRENT.reset(token)


def run_method(
    session: Session, yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """Run one mode of a YOLO object, validator or predictor under a session.

    Args:
        session: The session.
        yolo: The object.
        mode: The mode's name; `train` and `tune` get the preset's arguments under those of the call.
        method: What runs the mode, with its arguments.
        args: Arguments of the call.
        kwargs: Keyword arguments of the call.
    """
    if not enabled():
        return method(*args, **kwargs)
    trains = mode in ("train", "tune")
    with run(session, kwargs, trains=trains, yolo=yolo) as this:
        if trains:
            kwargs = train_arguments(this.settings, kwargs, yolo)
        if mode == "tune" and (lacks := probes.missing(probes.CHILDREN)):
            say("children.off", f"{probes.CHILDREN} is left off: {lacks[0]}", warning=True)
        with _heard(this, yolo) if mode == "train" else nullcontext():
            result = method(*args, **kwargs)
    return this.stream(result) if inspect.isgenerator(result) else result


@contextmanager
def _heard(this: Run, yolo: Any) -> Iterator[None]:
    """Let a run hear of the events of a YOLO object, before the functions of others: what it writes they may read."""
    added = {event: each for event, each in callbacks_of(this).items() if not hears(this, yolo.callbacks[event])}
    # New lists: Ultralytics may be running through the old ones, and would miss or repeat a function.
    for event, function in added.items():
        yolo.callbacks[event] = [function, *yolo.callbacks[event]]
    try:
        yield
    finally:
        for event, function in added.items():
            yolo.callbacks[event] = [other for other in yolo.callbacks[event] if other != function]
