"""Every YOLO object, trainer, validator and predictor of the process under one session; its own session wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from .. import ultralytics_hooks as hooks
from ..errors import YoloRocmError
from ..utils.off_switch import enabled
from .handoff import resident
from .run_mark import a_run, inside_a_run
from .session import Session

if TYPE_CHECKING:
    from ..ultralytics_hooks import Around, AroundTrainer, MakeTrainer

SessionOf = Callable[[], Session]
Undo = Callable[[], None]


def models_follow(session_of: SessionOf) -> Undo:
    """Run the modes of every YOLO object under a session. An object's own session wins. Returns what undoes it."""
    with ExitStack() as undo:
        undo.enter_context(hooks.all_modes_wrapped(_around_model(session_of)))
        return undo.pop_all().close


def trainers_follow(session_of: SessionOf) -> Undo:
    """Run trainers that a script makes itself, without a YOLO object, under a session."""
    return hooks.wrap_trainers(_around_trainer(session_of))


def validators_follow(session_of: SessionOf) -> Undo:
    """Run validators that a script makes itself under a session."""
    return hooks.wrap_calls("validator", _around_call(session_of))


def predictors_follow(session_of: SessionOf) -> Undo:
    """Run predictors that a script makes itself under a session."""
    return hooks.wrap_calls("predictor", _around_call(session_of))


FOLLOWERS: Final[Mapping[str, Callable[[SessionOf], Undo]]] = {
    "model": models_follow,
    "trainer": trainers_follow,
    "validator": validators_follow,
    "predictor": predictors_follow,
}


def one_follows(name: str, session_of: SessionOf) -> Undo:
    """Let one of them follow, by its name in `FOLLOWERS`, where the installed Ultralytics has a place for it."""
    if name != "model" and hooks.missing(hooks.WITHOUT_MODELS):
        return lambda: None
    return FOLLOWERS[name](session_of)


def all_follow(session_of: SessionOf) -> Undo:
    """Let all of them follow."""
    with ExitStack() as undo:
        for name in FOLLOWERS:
            undo.callback(one_follows(name, session_of))
        return undo.pop_all().close


def _own_session(callbacks: Mapping[str, list[Any]] | None) -> Session | None:
    """Return the session whose callbacks are among those of an object."""
    for function in (callbacks or {}).get("on_pretrain_routine_start", ()):
        session = getattr(function, "__self__", None)
        if isinstance(session, Session):
            return session
    return None


def _around_model(session_of: SessionOf) -> Around:
    def around(yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        # A registered object comes here from its own session; so does the second model that the AMP check runs.
        if inside_a_run() or not enabled():
            return method(*args, **kwargs)
        own = _own_session(getattr(yolo, "callbacks", None))
        if own is not None:
            return own.run_mode(yolo, mode, method, args, kwargs)
        session = session_of()
        mine = session.callbacks() if mode == "train" else {}
        for event, function in mine.items():
            yolo.add_callback(event, function)
        try:
            return session.run_mode(yolo, mode, method, args, kwargs)
        finally:
            for event, function in mine.items():
                if function in yolo.callbacks[event]:  # a script may have cleared them meanwhile
                    yolo.callbacks[event].remove(function)

    return around


def _around_call(session_of: SessionOf) -> Around:
    def around(caller: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if inside_a_run() or not enabled():
            return method(*args, **kwargs)
        session = _own_session(getattr(caller, "callbacks", None)) or session_of()
        return session.run_mode(caller, mode, method, args, kwargs)

    return around


def _around_trainer(session_of: SessionOf) -> AroundTrainer:
    def around(trainer: Any, make: MakeTrainer, overrides: dict[str, Any], taken: set[str], callbacks: Any) -> None:
        if inside_a_run() or not enabled() or resident() is not None or _own_session(callbacks) is not None:
            make(overrides, callbacks)
            return
        session = session_of()
        session.hear(overrides)
        added = session.train_arguments(overrides)
        overrides = {**{name: value for name, value in added.items() if name not in taken}, **overrides}
        with session.active():
            make(overrides, hooks.with_callbacks(callbacks, session.callbacks()))
        if "train" not in vars(trainer):  # not announced: on other ranks than the first, and by older Ultralytics
            trainer.train = _led(session, trainer.train)

    return around


def _led(session: Session, train: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with session.active(), a_run():
                return train(*args, **kwargs)
        except YoloRocmError:
            raise
        except Exception as error:
            hooks.say_diagnosis(error)
            raise

    return run
