"""Every YOLO object, trainer, validator and predictor of the process under one session; its own session wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from ..ultralytics_hooks import everywhere, models, probes
from ..utils.off_switch import enabled
from .arguments import train_arguments
from .events import Events, resident
from .run import current, led, run_method

if TYPE_CHECKING:
    from ..ultralytics_hooks.everywhere import AroundTrainer, MakeTrainer
    from ..ultralytics_hooks.models import Around

EventsOf = Callable[[], Events]
Follow = Callable[[EventsOf], AbstractContextManager[None]]

# Each by the module of `ultralytics.engine` whose base class is wrapped.
FOLLOWERS: Final[Mapping[str, Follow]] = {
    "model": lambda events_of: models.all_modes_wrapped(_around_model(events_of)),
    "trainer": lambda events_of: everywhere.trainers_wrapped(_around_trainer(events_of)),
    "validator": lambda events_of: everywhere.calls_wrapped("validator", _around_call(events_of)),
    "predictor": lambda events_of: everywhere.calls_wrapped("predictor", _around_call(events_of)),
}


def one_follows(name: str, events_of: EventsOf) -> AbstractContextManager[None]:
    """Let one of them follow, by its name in `FOLLOWERS`, where the installed Ultralytics has a place for it."""
    if name != "model" and probes.missing(probes.WITHOUT_MODELS):
        return nullcontext()
    return FOLLOWERS[name](events_of)


@contextmanager
def all_follow(events: Events) -> Iterator[None]:
    """Let all of them follow while the context is open."""
    with ExitStack() as undo:
        for name in FOLLOWERS:
            undo.enter_context(one_follows(name, lambda: events))
        yield


def _left_alone() -> bool:
    """Return whether a session leads already what runs here, as it does the second model of the AMP check."""
    return current() is not None or not enabled()


def _own(callbacks: Mapping[str, list[Any]] | None) -> Events | None:
    """Return the events of the session whose callbacks are among those of an object."""
    for function in (callbacks or {}).get("on_pretrain_routine_start", ()):
        events = getattr(function, "__self__", None)
        if isinstance(events, Events):
            return events
    return None


def _around_model(events_of: EventsOf) -> Around:
    def around(yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if _left_alone():
            return method(*args, **kwargs)
        own = _own(getattr(yolo, "callbacks", None))
        events = own or events_of()
        added = events.callbacks() if own is None and mode == "train" else {}
        for event, function in added.items():
            yolo.add_callback(event, function)
        try:
            return run_method(events.session, yolo, mode, method, args, kwargs)
        finally:
            for event, function in added.items():
                if function in yolo.callbacks[event]:  # a script may have cleared them meanwhile
                    yolo.callbacks[event].remove(function)

    return around


def _around_call(events_of: EventsOf) -> Around:
    def around(caller: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if _left_alone():
            return method(*args, **kwargs)
        events = _own(getattr(caller, "callbacks", None)) or events_of()
        return run_method(events.session, caller, mode, method, args, kwargs)

    return around


def _around_trainer(events_of: EventsOf) -> AroundTrainer:
    def around(trainer: Any, make: MakeTrainer, overrides: dict[str, Any], taken: set[str], callbacks: Any) -> None:
        if _left_alone() or resident() is not None or _own(callbacks) is not None:
            make(overrides, callbacks)
            return
        events = events_of()
        session = events.session
        session.begin(overrides)
        if not session.is_active:
            session.renew()
        added = train_arguments(session.settings, overrides)
        overrides = {**overrides, **{name: value for name, value in added.items() if name not in taken}}
        with session.active():
            make(overrides, everywhere.with_callbacks(callbacks, events.callbacks()))
        if "train" not in vars(trainer):  # not announced: on other ranks than the first, and by older Ultralytics
            trainer.train = led(session, trainer.train)

    return around
