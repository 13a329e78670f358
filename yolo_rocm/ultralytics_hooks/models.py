"""YOLO objects: how they are made, and how their modes are wrapped."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError

MODES: Final = ("train", "val", "predict", "track", "embed", "tune", "export", "benchmark")
Around = Callable[[Any, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def model_class() -> type:
    """Return the class whose methods are the modes of every YOLO object."""
    from ultralytics.engine.model import Model

    result: type = Model
    return result


def check_model(yolo: Any) -> None:
    """Refuse anything but an Ultralytics model object.

    Raises:
        ConfigError: It is something else; a file name, or the torch module inside.
    """
    if not isinstance(yolo, model_class()):
        raise ConfigError(
            f"register() takes a YOLO object, got {type(yolo).__name__}. Pass what `YOLO(...)` returned, not its "
            "file name and not `yolo.model`."
        )


def load_model(model: Any) -> Any:
    """Return a YOLO object for weights or a model YAML; one that exists is taken as it is."""
    if isinstance(model, model_class()):
        return model
    if Path(str(model)).stem.lower().startswith("rtdetr"):  # its YAML does not tell YOLO() its task
        from ultralytics import RTDETR

        return RTDETR(model)
    from ultralytics import YOLO

    return YOLO(model)


def torch_module(model: str) -> Any:
    """Return the torch module of a model YAML or weights."""
    return load_model(model).model.float()


def plain_model(model: Any) -> Any:
    """Return the model inside DistributedDataParallel and torch.compile wrappers."""
    while True:
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if inner is None or not hasattr(inner, "named_modules"):
            return model
        model = inner


def wrap_modes(target: Any, around: Around) -> Callable[[], None]:
    """Run the modes of a YOLO object, or of Ultralytics' `Model` class, through `around`.

    Args:
        target: A YOLO object, whose class stays untouched, or the class of all of them.
        around: Called with the object, the mode, the original method and its arguments.

    Returns:
        A function that puts everything back.
    """
    is_class = isinstance(target, type)
    before = {mode: vars(target)[mode] for mode in MODES if mode in vars(target)}
    wrapped = [mode for mode in MODES if hasattr(target, mode)]

    def wrapper(mode: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if is_class:

            @functools.wraps(original)
            def run(self: Any, *args: Any, **kwargs: Any) -> Any:
                return around(self, mode, types.MethodType(original, self), args, kwargs)
        else:

            @functools.wraps(original)
            def run(*args: Any, **kwargs: Any) -> Any:
                return around(target, mode, original, args, kwargs)

        return run

    def undo() -> None:
        for mode in wrapped:
            if mode in before:
                setattr(target, mode, before[mode])
            elif mode in vars(target):
                delattr(target, mode)

    for mode in wrapped:
        setattr(target, mode, wrapper(mode, getattr(target, mode)))
    return undo
