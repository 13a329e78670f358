"""YOLO objects: how they are made, and how their modes are wrapped."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, DownloadError, MissingFileError
from ..utils.error_text import first_line
from ..utils.scoped_patch import attribute
from .arguments import check_weights, no_model

MODES: Final = ("train", "val", "predict", "track", "embed", "tune", "export", "benchmark")
# Models that YOLO() cannot make, by how the names of their files begin.
_OTHERS: Final = {
    "RTDETR": ".*rtdetr",  # its YAML does not tell YOLO() its task, also as yolov8-rtdetr
    "FastSAM": "fastsam",
    "SAM": r"sam_|sam2_|sam2\.1_|sam3|mobile_sam",
    "NAS": "yolo_nas",
}
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


def load_model(model: Any, task: str | None = None) -> Any:
    """Return a YOLO object for weights or a model YAML; one that exists is taken as it is.

    Args:
        model: What `YOLO` takes, or a YOLO object.
        task: The model's task, where its file does not tell, as of some exported ones.

    Raises:
        ConfigError: It is the YAML of something else, such as a data set.
        MissingFileError: There is no such file, nor one that Ultralytics carries or publishes.
        DownloadError: Ultralytics publishes it, and it cannot be downloaded.
    """
    if isinstance(model, model_class()):
        return model
    check_weights(model)
    try:
        return _make(model, task)
    except KeyError as error:
        if error.args[:1] not in (("backbone",), ("head",)):
            raise
        raise ConfigError(
            f"{str(model)!r} is no model: it has no {error}. Give model= weights such as yolo11n.pt, or a model YAML "
            "such as yolo11n.yaml; the YAML of a data set belongs to data=."
        ) from error
    except FileNotFoundError as error:
        if Path(str(model)).exists() or "does not exist" not in str(error):  # it needs another file
            raise
        raise MissingFileError(no_model(model)) from error
    except ConnectionError as error:
        raise DownloadError(
            f"model {str(model)!r} cannot be downloaded: {first_line(error)} Give the path of weights that are here, "
            "or a model YAML such as yolo11n.yaml, which needs no weights."
        ) from error


def _make(model: Any, task: str | None) -> Any:
    import ultralytics

    stem = Path(str(model)).stem.lower()
    for name, pattern in _OTHERS.items():
        if re.match(pattern, stem) and hasattr(ultralytics, name):
            try:
                return getattr(ultralytics, name)(model)
            except FileNotFoundError:
                if not Path(str(model)).is_file():
                    raise
                break  # SAM takes its own names alone; these may be weights of another model
    return ultralytics.YOLO(model, task=task)


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


def is_compiled(model: Any) -> bool:
    """Return whether a model is inside a torch.compile wrapper."""
    while model is not None:
        if hasattr(model, "_orig_mod"):
            return True
        model = getattr(model, "module", None)
    return False


class ObjectMode:
    """A mode of one YOLO object, run through `around` until it is let go. It can be copied and pickled with the object.

    It is on the object in place of the method. Whoever wraps the mode once more keeps their wrapper when this one goes:
    it then only passes calls on.
    """

    def __init__(self, target: Any, mode: str, around: Around) -> None:
        self._target, self._mode = target, mode
        self._around: Around | None = around
        self._before = vars(target).get(mode)
        self.__name__, self.__doc__ = mode, self.__wrapped__.__doc__

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """What `inspect` takes the signature from: the method itself."""
        if self._before is not None:
            return self._before  # type: ignore[no-any-return]
        return types.MethodType(getattr(type(self._target), self._mode), self._target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the mode."""
        if self._around is None:
            return self.__wrapped__(*args, **kwargs)
        return self._around(self._target, self._mode, self.__wrapped__, args, kwargs)

    def let_go(self) -> None:
        """Put the method back where nobody else has replaced it since."""
        self._around = None
        if vars(self._target).get(self._mode) is self:
            if self._before is None:
                delattr(self._target, self._mode)
            else:
                setattr(self._target, self._mode, self._before)


def wrap_modes(yolo: Any, around: Around) -> list[ObjectMode]:
    """Run the modes of one YOLO object through `around`; its class stays untouched.

    Args:
        yolo: A YOLO object.
        around: Called with the object, the mode, the original method and its arguments.

    Returns:
        What is now in the place of the methods; `let_go()` of each puts everything back.
    """
    modes = {name: ObjectMode(yolo, name, around) for name in MODES if hasattr(type(yolo), name)}
    for name, mode in modes.items():
        setattr(yolo, name, mode)
    return list(modes.values())


def own_mode(yolo: Any, mode: str) -> Callable[..., Any]:
    """Return a mode of a YOLO object without what `wrap_modes` has put in its place."""
    method: Callable[..., Any] = getattr(yolo, mode)
    return method.__wrapped__ if isinstance(method, ObjectMode) else method


@contextmanager
def all_modes_wrapped(around: Around) -> Iterator[None]:
    """Run the modes of every YOLO object of the process through `around` while the context is open.

    Whoever wraps one once more keeps their wrapper: ours then only passes calls on.
    """
    ended = False

    def wrapper(mode: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            method = types.MethodType(original, self)
            return method(*args, **kwargs) if ended else around(self, mode, method, args, kwargs)

        return run

    with ExitStack() as undo:
        for mode in MODES:
            if mode in vars(model_class()):
                place = attribute("ultralytics.engine.model:Model", mode)
                undo.enter_context(place.on(functools.partial(wrapper, mode)))
        try:
            yield
        finally:
            ended = True
