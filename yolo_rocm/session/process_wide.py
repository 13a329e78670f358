"""Every YOLO object, trainer, validator and predictor of the process under one session; its own session wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from ..ultralytics_hooks import everywhere, models, probes
from ..utils.off_switch import enabled
from .arguments import train_arguments
from .current_run import current
from .events import Callback, callbacks_of
from .given import with_resumed_preset
from .run import Run, run_method

if TYPE_CHECKING:
    from ..ultralytics_hooks.everywhere import AroundTrainer, MakeTrainer
    from ..ultralytics_hooks.models import Around
    from .session import Session

SessionOf = Callable[[], "Session"]
# Each by the module of `ultralytics.engine` whose base class is wrapped.
FOLLOWERS: Final = ("model", "trainer", "validator", "predictor")


def one_follows(name: str, session_of: SessionOf) -> AbstractContextManager[None]:
    """Wrap one of Ultralytics' base classes (see `FOLLOWERS`), where the installed Ultralytics has a place for it."""
    if name == "model":
        return models.all_modes_wrapped(_around_call(session_of))
    if probes.missing(probes.WITHOUT_MODELS):
        return nullcontext()
    if name == "trainer":
        return everywhere.trainers_wrapped(_around_trainer(session_of))
    return everywhere.calls_wrapped(name, _around_call(session_of))


@contextmanager
def all_follow(session: Session) -> Iterator[None]:
    """Let all of them follow a session while the context is open."""
    with ExitStack() as undo:
        for name in FOLLOWERS:
            undo.enter_context(one_follows(name, lambda: session))
        yield


def _left_alone() -> bool:
    """Return whether a session leads already what runs here, as it does the second model of the AMP check."""
    return current() is not None or not enabled()


def _own_session(callbacks: Mapping[str, list[Any]] | None) -> Session | None:
    """Return the session whose callbacks are among those of an object."""
    functions = (callbacks or {}).get("on_pretrain_routine_start", ())
    return next((each.run.session for each in functions if isinstance(each, Callback)), None)


def _around_call(session_of: SessionOf) -> Around:
    def around(caller: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if _left_alone():
            return method(*args, **kwargs)
        session = _own_session(getattr(caller, "callbacks", None)) or session_of()
        if mode == "train":
            session, kwargs = with_resumed_preset(session, caller, kwargs)
        return run_method(session, caller, mode, method, args, kwargs)

    return around


def _around_trainer(session_of: SessionOf) -> AroundTrainer:
    def around(trainer: Any, make: MakeTrainer, overrides: dict[str, Any], taken: set[str], callbacks: Any) -> None:
        if _left_alone() or _own_session(callbacks) is not None:
            make(overrides, callbacks)
            return
        run = Run(session_of(), overrides)
        added = train_arguments(run.settings, overrides)
        overrides = {**overrides, **{name: value for name, value in added.items() if name not in taken}}
        with run.applied():
            make(overrides, everywhere.with_callbacks(callbacks, callbacks_of(run)))
        if "train" not in vars(trainer):  # not announced: on other ranks than the first, and by older Ultralytics
            trainer.train = run.around(trainer.train)

    return around
