"""An exported model that predicts in the place of a YOLO object: its callbacks, its arguments, its results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .models import load_model

PRECISION: Final = ("half", "int8", "quantize")  # arguments that are chosen with the engine
_KINDS: Final = ("YOLO", "RTDETR")  # others predict with prompts, or with networks of their own
_ONLY_TORCH: Final = ("augment", "visualize", "embed", "predictor", "prompts")
_NAMES: Final = {"predict": ("source", "stream", "predictor"), "track": ("source", "stream", "persist")}


class ExportedModel:
    """A YOLO object for an exported file. It follows another one whose predictions it computes."""

    def __init__(self, file: Path, task: str) -> None:
        self._yolo = load_model(file, task)
        self._own = {name: value for name, value in self._yolo.overrides.items() if name in ("model", "task")}

    def following(self, yolo: Any) -> Any:
        """Return the object that predicts, with the callbacks and arguments that `yolo` has now.

        Its trackers are its own: they know what it has tracked.
        """
        others = {name: value for name, value in yolo.overrides.items() if name not in PRECISION}
        self._yolo.overrides = {**others, **self._own}
        for event, functions in list(yolo.callbacks.items()):
            trackers = [function for function in self._yolo.callbacks[event] if _tracks(function)]
            # A new list: Ultralytics may be running through the old one. The dictionary is its predictor's, too.
            self._yolo.callbacks[event] = [*(each for each in functions if not _tracks(each)), *trackers]
        return self._yolo


def _tracks(function: Any) -> bool:
    """Return whether a callback is one of Ultralytics' trackers."""
    return str(getattr(getattr(function, "func", function), "__module__", "")).startswith("ultralytics.trackers")


def named_arguments(mode: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of `predict` or `track` by name."""
    return {**dict(zip(_NAMES[mode], args, strict=False)), **kwargs}


def only_torch(yolo: Any, arguments: Mapping[str, Any]) -> str:
    """Return why torch alone can predict this; nothing where an exported model can.

    Args:
        yolo: The object.
        arguments: Those of the call, by name.
    """
    if type(yolo).__name__ not in _KINDS:
        return f"{type(yolo).__name__} objects have no exported form here"
    if not hasattr(yolo.model, "named_modules"):
        return "the model is exported already"
    given = {**yolo.overrides, **arguments}
    asked = [name for name in _ONLY_TORCH if given.get(name) not in (None, False)]
    if asked:
        return f"{asked[0]}= needs the layers of the model"
    if hasattr(arguments.get("source"), "is_floating_point"):
        return "a tensor has the size it has, and an exported model may have another"
    if any(module._forward_hooks or module._forward_pre_hooks for module in yolo.model.modules()):
        return "there are hooks on the model's layers"
    return ""
