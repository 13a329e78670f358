"""Trainers, validators and predictors of a whole process, wrapped at their base classes."""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ..preset.cfg_file import keys_of
from .models import Around

MakeTrainer = Callable[[dict[str, Any], Any], None]
AroundTrainer = Callable[[Any, MakeTrainer, dict[str, Any], set[str], Any], None]
# Base class, the mode it is for, and the methods by which a script starts it.
_CALLED: Final = {
    "validator": ("BaseValidator", "val", ("__call__",)),
    "predictor": ("BasePredictor", "predict", ("__call__", "predict_cli")),
}


def wrap_trainers(around: AroundTrainer) -> Callable[[], None]:
    """Let every trainer be constructed through `around`.

    Args:
        around: Called with the trainer, a function that constructs it from overrides and callbacks, the overrides it
            was given, the names its `cfg` argument sets, and the callbacks it was given.

    Returns:
        A function that puts everything back.
    """
    from ultralytics.engine.trainer import BaseTrainer

    original = BaseTrainer.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs).arguments

        def make(overrides: dict[str, Any], callbacks: Any) -> None:
            original(**{**bound, "self": self, "overrides": overrides, "_callbacks": callbacks})

        around(self, make, dict(bound.get("overrides") or {}), _names(bound.get("cfg")), bound.get("_callbacks"))

    BaseTrainer.__init__ = construct

    def undo() -> None:
        BaseTrainer.__init__ = original

    return undo


def _names(cfg: Any) -> set[str]:
    """Return the arguments that a trainer's `cfg` sets: a file, a dictionary or a namespace."""
    from ultralytics.utils import DEFAULT_CFG

    if cfg is None or cfg is DEFAULT_CFG:
        return set()
    if isinstance(cfg, str | Path):
        return set(keys_of(cfg))
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


def wrap_calls(kind: str, around: Around) -> Callable[[], None]:
    """Run what a script calls by itself through `around`: `kind` is `validator` or `predictor`.

    Returns:
        A function that puts everything back.
    """
    name, mode, methods = _CALLED[kind]
    base = getattr(importlib.import_module(f"ultralytics.engine.{kind}"), name)
    originals = {method: getattr(base, method) for method in methods}

    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kind == "validator" and (args[0] if args else kwargs.get("trainer")) is not None:
                return original(self, *args, **kwargs)  # a trainer validates: it has a session, or wants none
            return around(self, mode, types.MethodType(original, self), args, kwargs)

        return call

    for method, original in originals.items():
        setattr(base, method, wrapper(original))

    def undo() -> None:
        for method, original in originals.items():
            setattr(base, method, original)

    return undo
