"""Trainers, validators and predictors of a whole process, wrapped at their base classes."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..preset.cfg_file import with_file
from ..utils.scoped_patch import attribute
from .models import Around

MakeTrainer = Callable[[dict[str, Any], Any], None]
AroundTrainer = Callable[[Any, MakeTrainer, dict[str, Any], set[str], Any], None]
# Base class, the mode it is for, and the methods by which a script starts it.
_CALLED: Final = {
    "validator": ("BaseValidator", "val", ("__call__",)),
    "predictor": ("BasePredictor", "predict", ("__call__", "predict_cli")),
}


def trainers_wrapped(around: AroundTrainer) -> AbstractContextManager[None]:
    """Let every trainer be constructed through `around` while the context is open.

    Args:
        around: Called with the trainer, a function that constructs it from overrides and callbacks, the overrides it
            was given, the names its `cfg` argument sets, and the callbacks it was given.
    """

    def wrapper(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(self, *args, **kwargs).arguments

            def make(overrides: dict[str, Any], callbacks: Any) -> None:
                original(**{**bound, "self": self, "overrides": overrides, "_callbacks": callbacks})

            around(self, make, dict(bound.get("overrides") or {}), _names(bound.get("cfg")), bound.get("_callbacks"))

        return construct

    return attribute("ultralytics.engine.trainer:BaseTrainer", "__init__").on(wrapper, "process-wide")


def _names(cfg: Any) -> set[str]:
    """Return the arguments that a trainer's `cfg` sets: a file, a dictionary or a namespace."""
    from ultralytics.utils import DEFAULT_CFG

    if cfg is None or cfg is DEFAULT_CFG:
        return set()
    if isinstance(cfg, str | Path):
        return set(with_file({"cfg": cfg}))
    return set(cfg if isinstance(cfg, Mapping) else vars(cfg))


def with_callbacks(callbacks: Any, added: Mapping[str, Callable[[Any], None]]) -> dict[str, list[Any]]:
    """Return a trainer's callbacks, or Ultralytics' own where it was given none, with others behind them."""
    from ultralytics.utils.callbacks import get_default_callbacks

    result = get_default_callbacks()
    if callbacks:
        result.update({event: [*functions] for event, functions in callbacks.items()})
    for event, function in added.items():
        result[event] = [*result[event], function]
    return result  # type: ignore[no-any-return]


@contextmanager
def calls_wrapped(kind: str, around: Around) -> Iterator[None]:
    """Run what a script calls by itself through `around`: `kind` is `validator` or `predictor`."""
    name, mode, methods = _CALLED[kind]

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kind == "validator" and (args[0] if args else kwargs.get("trainer")) is not None:
                return original(self, *args, **kwargs)  # a trainer validates: it has a session, or wants none
            return around(self, mode, types.MethodType(original, self), args, kwargs)

        return call

    with ExitStack() as undo:
        for method in methods:
            undo.enter_context(attribute(f"ultralytics.engine.{kind}:{name}", method).on(wrapper))
        yield
