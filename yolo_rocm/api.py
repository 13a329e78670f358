"""The three ways in: train, register on a YOLO object, or take the callbacks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .session import Session
from .stops import orderly_end

if TYPE_CHECKING:
    from .conv.report import ConvReport
    from .preset import Settings

PresetSource = str | Path | Mapping[str, Any]


class Registration:
    """A YOLO object whose modes run under a preset, until `remove()`."""

    def __init__(self, yolo: Any, session: Session) -> None:
        self._session = session
        self._yolo = weakref.ref(yolo)
        self._callbacks = session.callbacks()
        self._undo: Callable[[], None] | None = None
        self._variables = session.set_early()
        weakref.finalize(yolo, self._variables.close)
        self._attach(yolo)

    def _attach(self, yolo: Any) -> None:
        from . import ultralytics_hooks as hooks

        for event, function in self._callbacks.items():
            yolo.add_callback(event, function)
        self._undo = hooks.wrap_modes(yolo, self._session.run_mode)

    def _detach(self, yolo: Any) -> None:
        if self._undo is None:
            return
        self._undo()
        self._undo = None
        for event, function in self._callbacks.items():
            registered = yolo.callbacks.get(event, [])
            if function in registered:
                registered.remove(function)

    @property
    def settings(self) -> Settings:
        """Final values of the preset with their origins."""
        return self._session.settings

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were served by; None before the first."""
        return self._session.report

    def remove(self) -> None:
        """Give the YOLO object back as it was. Calling it twice does no harm."""
        self._variables.close()
        yolo = self._yolo()
        if yolo is not None:
            self._detach(yolo)
            if _registration_of(yolo) is self:
                delattr(yolo, _ATTRIBUTE)


# Kept on the object, not in a table of ours: a table would keep the object alive through its wrapped methods.
_ATTRIBUTE = "_yolo_rocm_registration"


def _registration_of(yolo: Any) -> Registration | None:
    registration: Registration | None = vars(yolo).get(_ATTRIBUTE)
    return registration


def register(yolo: Any, preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> Registration:
    """Let an existing YOLO object train, validate, predict and tune under a preset.

    Outside those calls the process is untouched, but for environment variables that must be set before the GPU runtime
    starts: they stay until `remove()`. Registering an object again replaces its preset.

    Args:
        yolo: A `YOLO`, `RTDETR` or other Ultralytics model object.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections laid over the preset, e.g. `{"conv": {"engine": "gemm"}}`.

    Returns:
        A handle with `remove()`, `report` and `settings`.
    """
    from . import ultralytics_hooks as hooks

    hooks.require()
    hooks.check_model(yolo)
    session = Session(preset, rocm)
    before = _registration_of(yolo)
    if before is not None:
        before.remove()
    registration = Registration(yolo, session)
    setattr(yolo, _ATTRIBUTE, registration)
    return registration


@contextmanager
def _registered_for_one_run(yolo: Any, session: Session) -> Iterator[None]:
    """Register for one call; a registration the object already has steps aside and comes back."""
    before = _registration_of(yolo)
    if before is not None:
        before._detach(yolo)
    own = Registration(yolo, session)
    try:
        yield
    finally:
        own.remove()
        if before is not None:
            before._attach(yolo)


def callbacks(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> dict[str, Callable[[Any], None]]:
    """Return a preset as `{event: function}` for `yolo.add_callback`.

    Training and prediction are covered. Validation on its own is not: Ultralytics runs the model before the first
    validation event, so use `register` for it.
    """
    return Session(preset, rocm).callbacks()


@contextmanager
def everywhere(preset: PresetSource = "auto", rocm: Mapping[str, Any] | None = None) -> Iterator[Session]:
    """Let every YOLO object of this process run under a preset while the context is open."""
    session = Session(preset, rocm)

    def around(yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        mine = session.callbacks() if mode == "train" else {}
        for event, function in mine.items():
            yolo.add_callback(event, function)
        try:
            return session.run_mode(yolo, mode, method, args, kwargs)
        finally:
            for event, function in mine.items():
                yolo.callbacks[event].remove(function)

    with session.environment():
        from . import ultralytics_hooks as hooks

        hooks.require()
        undo = hooks.wrap_modes(hooks.model_class(), around)
        try:
            yield session
        finally:
            undo()


@dataclass(frozen=True)
class Outcome:
    """What a finished training leaves behind."""

    metrics: Any
    report: ConvReport | None
    settings: Settings
    folder: Path


def train(
    model: Any = "yolo11n.pt",
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Train a model under a preset.

    Args:
        model: Weights, a model YAML, or a YOLO object.
        data: Data set, as Ultralytics takes it.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections laid over the preset for this run.
        **arguments: Any training argument of Ultralytics; it wins over the preset.

    Returns:
        Ultralytics' metrics object.

    Raises:
        YoloRocmError: A preset, argument or data set is wrong, or an engine cannot serve the model; nothing is left
            patched and no run folder behind.
    """
    return run_training(model, data, preset, rocm, **arguments).metrics


def run_training(
    model: Any = "yolo11n.pt",
    data: Any = None,
    preset: PresetSource = "auto",
    rocm: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Outcome:
    """Train like `train` and return metrics, report, settings and the run's folder together."""
    session = Session(preset, rocm, **arguments)
    with orderly_end(), session.environment():
        from . import ultralytics_hooks as hooks

        hooks.require()
        hooks.check_arguments(arguments)
        hooks.check_data(data)
        if data is not None:
            arguments["data"] = data
        # The model is built under the preset too: Ultralytics runs it once to find its strides.
        with session.active():
            yolo = hooks.load_model(model)
            with _registered_for_one_run(yolo, session):
                metrics = yolo.train(**arguments)
            return Outcome(metrics, session.report, session.settings, Path(yolo.trainer.save_dir))
