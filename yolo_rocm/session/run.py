"""One way through a run: every train, val, predict and tune, from whichever way in, begins and ends here.

A run begins in this order:

1. SIGTERM and SIGHUP are made to end it like Ctrl-C does (trainings only).
2. The session becomes active: environment, check of versions, opening lines, vendor library, hooks, loaders,
   convolutions, BatchNorm (`session.active`).
3. The run is marked as going on in this thread. A run of the same session inside it, as from a callback, only has its
   own arguments and is part of the outer one; whoever wraps every YOLO object of the process leaves it alone.
4. Processes that Ultralytics starts follow the session.

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

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import YoloRocmError
from ..ultralytics_hooks import checkpoints, children, probes, ranks
from ..ultralytics_hooks.log import say
from ..utils.atomic import no_room
from ..utils.off_switch import enabled
from . import sigterm
from .arguments import given_by_user, size_of_images, train_arguments
from .failures import is_lost_rank, say_diagnosis
from .handoff import describe
from .resumed_run import take_up
from .session import Session

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from .training import TrainingRun

_current: ContextVar[Run | None] = ContextVar("yolo_rocm_run", default=None)


def current() -> Run | None:
    """Return the run that is going on in this thread."""
    return _current.get()


class Run:
    """A run that is going on.

    Attributes:
        session: Its session.
        trainings: Those it has begun, the newest last.
    """

    def __init__(self, session: Session, owner: Any = None) -> None:
        self.session = session
        self.trainings: list[TrainingRun] = []
        self._owner = owner
        self._explains = current() is None

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Mark what runs in this context, in this thread, as part of the run; say what ends it."""
        token = _current.set(self)
        try:
            with self.session.inference.at_work():
                yield
        except BaseException as error:
            better = self._say(error)
            if better is not None:
                raise better from error
            raise
        finally:
            _current.reset(token)

    def _say(self, error: BaseException) -> YoloRocmError | None:
        """Say what has ended the run; return what to raise in its place."""
        if isinstance(error, KeyboardInterrupt | sigterm.Terminated):
            for training in reversed(self.trainings):
                training.say_stopped(error, newest=training is self.trainings[-1])
            return None
        if not isinstance(error, Exception):
            return None
        for training in self.trainings:
            training.leave_page()
        better: YoloRocmError | None = None
        if not isinstance(error, YoloRocmError):
            if self.trainings and isinstance(error, OSError) and no_room(error):
                better = self.trainings[-1].no_room(error)
            elif self.trainings and is_lost_rank(error):
                better = self.trainings[-1].lost_rank(error)
            elif self._explains:
                self._explains = False
                say_diagnosis(error)
        if better is not None or isinstance(error, YoloRocmError):
            self._let_go()  # telemetry writes into the folder
            for folder in self._folders() if ranks.is_main_rank() else ():
                checkpoints.discard_run_folder(folder)
        return better

    def close(self) -> None:
        """Let go of what the run has begun."""
        self._let_go()
        for folder in self._folders():
            checkpoints.forget_run_folder(folder)

    def _let_go(self) -> None:
        """Close the trainings: older Ultralytics runs no teardown after an error."""
        with ExitStack() as ends:  # all of them, also if one fails
            for training in self.trainings:
                ends.callback(training.close)

    def _folders(self) -> set[Path]:
        of_owner = getattr(getattr(self._owner, "trainer", None), "save_dir", None)
        folders = {training.folder for training in self.trainings}
        return folders if of_owner is None else {*folders, Path(of_owner)}


@contextmanager
def run(
    session: Session, arguments: Mapping[str, Any] | None, *, trains: bool = False, owner: Any = None
) -> Iterator[Run]:
    """Run what is in this context under a session.

    Args:
        session: The session.
        arguments: Those of the call; None where they are the session's already.
        trains: Whether it is a training, which SIGTERM and SIGHUP end in order.
        owner: The YOLO object whose trainer may be at work.
    """
    outer = current()
    if not enabled():
        yield Run(session)
        return
    if outer is not None and outer.session is session:
        with _its_own_arguments(session, arguments or {}):
            yield outer
        return
    # A stream that nobody has read to its end: its arguments are not those of this run.
    session.streaming.close()
    session.streaming = ExitStack()
    if arguments is not None:
        given = given_by_user(arguments)
        session.begin({**given, "imgsz": size_of_images(session.settings, given, owner)})
        if not session.is_active:
            session.renew()
    this = Run(session, owner)
    with sigterm.orderly_end() if trains else nullcontext(), session.active():
        try:
            with this.going_on(), children.children_follow(describe(session)), children.launch_is_possible():
                yield this
        finally:
            this.close()


@contextmanager
def _its_own_arguments(session: Session, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Give a run inside another its own device and workers; it inherits what it does not name."""
    before = session.device, session.workers
    session.device, session.workers = arguments.get("device", before[0]), arguments.get("workers", before[1])
    try:
        yield
    finally:
        session.device, session.workers = before


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
    if mode == "train":
        kwargs = take_up(session, yolo, kwargs)
    with run(session, kwargs, trains=trains, owner=yolo) as this:
        if trains:
            kwargs = train_arguments(session.settings, kwargs, yolo)
        if mode == "tune" and probes.missing(probes.CHILDREN):
            say("children.off", f"{probes.CHILDREN} is left off: {probes.missing(probes.CHILDREN)[0]}", warning=True)
        result = method(*args, **kwargs)
    return _stream(this, result) if inspect.isgenerator(result) else result


def _stream(this: Run, results: Any) -> Iterator[Any]:
    """Compute the items of a stream under its session, which stays active from the first item to the last.

    A stream that is closed or forgotten gives everything back then, and so does one between whose items another run of
    the session begins, until the next item. What the caller does between two items is not part of the run.
    """
    with ExitStack() as active, closing(results):
        while True:
            if this.session.streaming is not active:
                this.session.streaming.close()
                active.enter_context(this.session.active())
                this.session.streaming = active
            with this.going_on():
                try:
                    item = next(results)
                except StopIteration:
                    return
            yield item


def led(session: Session, train: Callable[..., Any], training: TrainingRun | None = None) -> Callable[..., Any]:
    """Return a trainer's `train` that is a run; for trainers that no run has made.

    Args:
        session: The session.
        train: The trainer's method.
        training: What is held of the trainer already.
    """

    def run_it(*args: Any, **kwargs: Any) -> Any:
        with run(session, None, trains=True) as this:
            if training is not None and training not in this.trainings:
                this.trainings.append(training)
            return train(*args, **kwargs)

    return run_it
