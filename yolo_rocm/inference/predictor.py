"""`yolo_rocm.predictor`: predict with the fastest engine that finds what torch finds."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..session.session import Session
from ..ultralytics_hooks import models, predicting, versions
from ..ultralytics_hooks.arguments import check_source
from .chooser import Choice
from .engine_runs import EngineRuns
from .ways import AUTO, TORCH, check_engine

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from ..conv.report import ConvReport


class Predictor:
    """Predicts like a YOLO object, with the engine that was asked for or the fastest one that agrees with torch."""

    def __init__(
        self, model: Any, engine: str, preset: Any, rocm: Mapping[str, Any] | None, task: str | None, arguments: Any
    ) -> None:
        self._session = Session(preset, rocm, **arguments)
        check_engine(engine, self._session.machine)
        held = self._session.set_early()
        weakref.finalize(self, held.close)
        with self._session.environment(arguments.get("device")):
            versions.require()
            self._yolo = models.load_model(model, task)
        if task is not None and self._yolo.task != task:
            raise ConfigError(f"{model} is a model for {self._yolo.task}, not for {task}. Leave task= out.")
        needs_file = engine not in (AUTO, TORCH) and isinstance(model, str | Path)
        if needs_file and predicting.weights_of(self._yolo) is None:
            raise ConfigError(f"engine={engine} needs the weights of a model, a .pt file; got {str(model)!r}.")
        from ..engines.seam import keep_kernels  # imports torch, as the model has done

        keep_kernels(self)
        self._arguments = arguments
        self._runs = EngineRuns(self._session, engine)

    @property
    def choice(self) -> Choice | None:
        """What the newest call was computed by: engine, file and why; None before the first."""
        return self._runs.choice

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of torch were computed by; None where another engine predicts."""
        return self._session.report

    def __call__(self, source: Any = None, stream: bool = False, **arguments: Any) -> Any:
        """Predict images, videos or a stream; see `YOLO.predict`.

        Returns:
            Ultralytics' results: a list, or with `stream` a generator.
        """
        return self._run("predict", source, stream, arguments)

    def track(self, source: Any = None, stream: bool = False, **arguments: Any) -> Any:
        """Track objects through a video; see `YOLO.track`."""
        return self._run("track", source, stream, arguments)

    def _run(self, mode: str, source: Any, stream: bool, arguments: dict[str, Any]) -> Any:
        check_source(source)
        given = {**self._arguments, **arguments, "source": source, "stream": stream}
        return self._runs.run(self._yolo, mode, getattr(self._yolo, mode), (), given)


def predictor(
    model: Any,
    engine: str = AUTO,
    preset: Any = "auto",
    rocm: Mapping[str, Any] | None = None,
    task: str | None = None,
    **arguments: Any,
) -> Predictor:
    """Return what predicts with the fastest engine that finds what torch finds.

    Before the first image every engine that is installed is measured on the first images of the source, each in a
    process of its own, and compared with torch in fp32 on the CPU. The fastest that agrees is remembered for this model
    file, these devices and this software. What it needs is exported once, beside the weights. With `auto` torch takes
    over from what fails, with one line in the log; an engine asked for by name predicts, or there is an error.

    Args:
        model: Weights, or a YOLO object.
        engine: `auto`, or one of `torch`, `torchscript`, `ncnn`, `onnx`, `openvino`.
        preset: A preset's name, `auto`, a YAML file or a dictionary.
        rocm: Sections over the preset.
        task: The model's task, where its file does not tell.
        **arguments: Arguments of `predict` for every call, such as `imgsz`, `batch`, `conf` or `device`.

    Returns:
        A function of a source, and of further arguments; `track` of it tracks. Results are Ultralytics' own.

    Raises:
        ConfigError: There is no such engine, model or source.
        EngineError: The engine is not installed, or cannot be used here; what a call asks of it is checked there.
    """
    return Predictor(model, engine, preset, rocm, task, arguments)
