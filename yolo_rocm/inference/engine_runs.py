"""Predictions of one YOLO object by the engine chosen for its weights; with `auto` by torch where that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

from ..errors import ConfigError, EngineError, YoloRocmError
from ..session.current_run import current
from ..session.run import run_method
from ..session.session import Session
from ..ultralytics_hooks import exported_model, predicting
from ..ultralytics_hooks.exported_model import ExportedModel
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.ncnn_precision import computing_in
from ..ultralytics_hooks.weights import MemoryWeights, WeightsFile
from ..utils.off_switch import enabled
from .chooser import Choice, Chooser, PredictRequest
from .ways import AUTO, TORCH

_MOST_LOADED: Final = 4  # image sizes, batches and devices whose engines are kept in memory
_END: Final = object()
_Key = tuple[WeightsFile, PredictRequest]


class EngineRuns:
    """Predicts and tracks for one YOLO object, which is given with each call.

    Args:
        session: What torch predicts under.
        engine: `auto`, or an engine's name.

    Attributes:
        choice: What the newest call was computed by; None before the first.
    """

    def __init__(self, session: Session, engine: str) -> None:
        self._session = session
        self._chooser = Chooser(session, engine)
        self._weights = MemoryWeights()
        self._chosen: dict[_Key, tuple[Choice, ExportedModel | None]] = {}
        self._lock = threading.RLock()
        self.choice: Choice | None = None

    @property
    def engine(self) -> str:
        """What was asked for."""
        return self._chooser.engine

    def close(self) -> None:
        """Let go of loaded engines, and of weights that were written for an export."""
        with self._lock:
            self._chosen.clear()
            self._weights.close()

    def run(self, yolo: Any, mode: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        """Run `predict` or `track`.

        Args:
            yolo: The object.
            mode: Which of both.
            method: The object's own, which torch computes.
            args: Arguments of the call.
            kwargs: Keyword arguments of the call.
        """

        def by_torch() -> Any:
            return run_method(self._session, yolo, mode, method, args, kwargs)

        outer = current()
        # Inside a run of the object it is part of that: its `track` calls its `predict`, and callbacks call anything.
        if not enabled() or (outer is not None and outer.session is self._session):
            return by_torch()
        given = exported_model.named_arguments(mode, args, kwargs)
        with self._lock:
            key, choice, model = self._choose(yolo, given)
            predicts = yolo if model is None else model.following(yolo)
        if choice.way is None or key is None:
            self.choice = choice
            return by_torch()
        arguments = {name: value for name, value in given.items() if name not in exported_model.PRECISION}
        arguments |= {**choice.way.arguments(), "imgsz": key[1].imgsz}
        call = method if predicts is yolo else getattr(predicts, mode)

        def by_engine() -> Any:
            # ncnn makes its networks at the first image.
            with computing_in(choice.engine, choice.way.dtype if choice.way else ""):
                results = run_method(self._session, predicts, mode, call, (), arguments)
                return _begun(results) if given.get("stream") else results

        if given.get("stream"):
            return self._stream(key, choice, by_engine, lambda: _begun(by_torch()))
        return self._or_torch(key, choice, by_engine, by_torch)

    def _choose(self, yolo: Any, given: dict[str, Any]) -> tuple[_Key | None, Choice, ExportedModel | None]:
        """Return what predicts, and what it is kept under."""
        if self.engine == TORCH:
            return None, Choice(None, None, "asked for"), None
        key = None
        try:
            reason = exported_model.only_torch(yolo, given)
            if reason:
                raise EngineError(reason)
            size = predicting.size_of(yolo, given.get("imgsz"))
            device = given.get("device", yolo.overrides.get("device"))
            size, device = (tuple(each) if isinstance(each, list) else each for each in (size, device))
            request = PredictRequest(size, given.get("batch") or 1, device)
            weights = self._weights.file(yolo)
            key = weights, request
            if any(kept is not weights for kept, _ in self._chosen):
                self._chosen.clear()
            if key not in self._chosen:
                choice = self._chooser.choose(weights.path, yolo.task, given.get("source"), request)
                while len(self._chosen) >= _MOST_LOADED:
                    self._chosen.pop(next(iter(self._chosen)))
                self._chosen[key] = choice, None if choice.file is None else ExportedModel(choice.file, yolo.task)
        except YoloRocmError as error:
            why = str(error).rstrip(".")
            if self.engine != AUTO:
                raise EngineError(f"engine={self.engine} cannot be used: {why}. engine=torch predicts this.") from error
            choice = Choice(None, None, why)
            if self.choice is None or self.choice.why != why:
                say("predict.torch", f"predicting with torch: {why}")
            if key is None or isinstance(error, ConfigError):  # a source: the next one may be there
                return None, choice, None
            self._chosen[key] = choice, None
        return key, *self._chosen[key]

    def _or_torch(self, key: _Key, choice: Choice, by_engine: Callable[[], Any], by_torch: Callable[[], Any]) -> Any:
        """Return what an engine computes, or torch where that fails; the choice is then forgotten.

        Raises:
            EngineError: The engine was asked for by name.
            Exception: What torch cannot do either, a source or a callback: that is no fault of the engine.
        """
        try:
            results = by_engine()
        except YoloRocmError:
            raise
        except Exception as error:
            results = by_torch()
            assert choice.way is not None
            failure = f"{choice.way.name} has failed at what torch predicts ({type(error).__name__}: {error})"
            self._chooser.forget(key[0].path, key[1])
            self._chosen.pop(key, None)
            if self.engine != AUTO:
                raise EngineError(f"{failure}. engine=torch predicts this.") from error
            say("predict.failed", f"{failure}: torch predicts", warning=True)
            choice = Choice(None, None, failure)
            self._chosen[key] = choice, None
        self.choice = choice
        return results

    def _stream(self, *call: Any) -> Iterator[Any]:
        """Yield the results of a stream; one whose first item fails is torch's from its beginning."""
        yield from self._or_torch(*call)


def _begun(results: Iterator[Any]) -> Iterator[Any]:
    """Return a stream whose first item was computed: what cannot be done at all fails here."""
    first = next(results, _END)

    def rest() -> Iterator[Any]:
        with closing(results):  # type: ignore[type-var]
            if first is not _END:
                yield first
                yield from results

    return rest()
