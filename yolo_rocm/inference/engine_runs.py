"""Predictions of one YOLO object by the engine chosen for its weights; with `auto` by torch where that fails."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import ConfigError, EngineError, YoloRocmError
from ..session.current_run import current
from ..session.failures import says_out_of_memory
from ..session.run import run_method
from ..session.session import Session
from ..ultralytics_hooks import exported_model, ncnn_precision, predicting
from ..ultralytics_hooks.exported_model import ExportedModel
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.weights import MemoryWeights, WeightsFile
from ..utils.off_switch import enabled
from .chooser import Asked, Choice, Chooser
from .ways import AUTO, TORCH, refusal

_MOST_LOADED: Final = 4  # image sizes, batches and devices whose engines are kept in memory
_END: Final = object()
_Key = tuple[WeightsFile, str]


@dataclass
class _EngineCall:
    """A call that an engine computes, and torch where it fails."""

    choice: Choice
    key: _Key | None
    asked: Asked
    by_torch: Callable[[], Any]
    begin: Callable[[], Any] = lambda: None


class EngineRuns:
    """Predicts and tracks for one YOLO object, which is given with each call.

    Args:
        session: What torch predicts under.
        engine: `auto`, or an engine's name.
        strict: Whether a source that engines cannot be compared on is an error; else it is left to Ultralytics.

    Attributes:
        choice: What the newest call was computed by; None before the first.
    """

    def __init__(self, session: Session, engine: str, strict: bool = False) -> None:
        self._session, self._strict = session, strict
        self._chooser = Chooser(session, engine)
        self._weights = MemoryWeights()
        self._made: dict[_Key, Choice] = {}
        self._loaded: OrderedDict[_Key, ExportedModel] = OrderedDict()
        self._told: set[str] = set()
        self._lock = threading.RLock()
        self.choice: Choice | None = None

    @property
    def engine(self) -> str:
        """What was asked for."""
        return self._chooser.engine

    def close(self) -> None:
        """Let go of loaded engines, and of weights that were written for an export."""
        with self._lock:
            self._made.clear()
            self._loaded.clear()
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
        asked = self._asked(yolo, given)
        with self._lock:
            choice, key = self._choose(yolo, given, asked)
            call = _EngineCall(choice, key, asked, by_torch)
            if choice.way is not None and key is not None:
                try:
                    predicts = self._loaded_model(yolo, choice, key, asked)
                except Exception as error:
                    self._failed(call, error)
                    return by_torch()
        if choice.way is None:
            self.choice = choice
            return by_torch()
        arguments = {name: value for name, value in given.items() if name not in exported_model.PRECISION}
        arguments |= {**choice.way.arguments(), "imgsz": asked.imgsz}
        call.begin = lambda: run_method(
            self._session, predicts, mode, method if predicts is yolo else getattr(predicts, mode), (), arguments
        )
        if given.get("stream"):
            return self._stream(call)
        try:
            with _precision(choice):
                results = call.begin()
        except Exception as error:
            return self._by_torch_after(call, error)
        self.choice = choice
        return results

    def _asked(self, yolo: Any, given: dict[str, Any]) -> Asked:
        device = given.get("device", yolo.overrides.get("device"))
        return Asked(predicting.size_of(yolo, given.get("imgsz")), given.get("batch") or 1, device)

    def _choose(self, yolo: Any, given: dict[str, Any], asked: Asked) -> tuple[Choice, _Key | None]:
        """Return what predicts, and what it is kept under."""
        if self.engine == TORCH:
            return Choice(None, None, "asked for"), None
        reason = exported_model.only_torch(yolo, given)
        if reason:
            return self._torch(reason), None
        try:
            weights = self._weights.file(yolo)
            if self._made and next(iter(self._made))[0] != weights:
                self._made.clear()
                self._loaded.clear()
            key = weights, repr(asked)
            if key not in self._made:
                self._made[key] = self._chooser.choose(weights.path, yolo.task, given.get("source"), asked)
            return self._made[key], key
        except YoloRocmError as error:
            if self.engine != AUTO or (self._strict and isinstance(error, ConfigError)):
                raise
            return self._torch(str(error)), None

    def _torch(self, why: str) -> Choice:
        if self.engine != AUTO:
            raise refusal(self.engine, why, "engine=torch and engine=auto predict this.")
        if why not in self._told:
            self._told.add(why)
            say("predict.torch", f"predicting with torch: {why}")
        return Choice(None, None, why)

    def _loaded_model(self, yolo: Any, choice: Choice, key: _Key, asked: Asked) -> Any:
        """Return the object that predicts in the place of `yolo`, which it is itself where nothing was exported."""
        assert choice.way is not None
        if choice.file is None:
            return yolo
        if key not in self._loaded:
            # Asked again: the file may have been replaced since by what others have exported.
            file = self._chooser.made(key[0].path, choice.way, asked)
            assert file is not None
            self._loaded[key] = ExportedModel(file, yolo.task)
        self._loaded.move_to_end(key)
        while len(self._loaded) > _MOST_LOADED:
            self._loaded.popitem(last=False)
        return self._loaded[key].following(yolo)

    def _by_torch_after(self, call: _EngineCall, error: Exception) -> Any:
        """Return what torch computes after an engine has failed, which is then let go of.

        Raises:
            YoloRocmError: The engine's error was one of ours.
            Exception: What torch cannot do either, a source or a callback: that is no fault of the engine.
        """
        if isinstance(error, YoloRocmError):
            raise error
        if says_out_of_memory(str(error)):  # torch may have none either, but has it once the engine is gone
            self._failed(call, error)
            return call.by_torch()
        results = call.by_torch()
        self._failed(call, error)
        return results

    def _failed(self, call: _EngineCall, error: Exception, forget: bool = True) -> None:
        """Forget what was chosen, also for later processes, and say that torch predicts.

        Raises:
            EngineError: The engine was asked for by name.
        """
        assert call.choice.way is not None
        torch, why = Choice(None, None, f"{call.choice.way.name} has failed"), f"{type(error).__name__}: {error}"
        if call.key is not None:
            with self._lock:
                if forget:
                    self._chooser.forget(call.key[0].path, call.asked)
                self._loaded.pop(call.key, None)
                self._made.pop(call.key)
                if self.engine == AUTO:
                    self._made[call.key] = torch
        if self.engine != AUTO:
            raise EngineError(f"{torch.why} at what torch predicts ({why}). engine=torch predicts this.") from error
        say("predict.failed", f"{torch.why} ({why}): torch predicts", warning=True)
        self.choice = torch

    def _stream(self, call: _EngineCall) -> Iterator[Any]:
        """Yield the results of a stream; one whose first item fails is torch's from its beginning."""
        try:
            with _precision(call.choice):
                results: Any = call.begin()
                first = next(results, _END)
        except Exception as error:
            results = self._by_torch_after(replace(call, by_torch=lambda: _begun(call.by_torch())), error)
            yield from results
            return
        self.choice = call.choice
        with closing(results):
            if first is _END:
                return
            yield first
            try:
                yield from results
            except Exception as error:  # what was read of the source is gone: the caller has to begin again
                if self.engine == AUTO:
                    self._failed(call, error, forget=False)  # by the engine, the source or the caller: unknown
                raise


def _begun(results: Iterator[Any]) -> Iterator[Any]:
    """Return a stream whose first item was computed: what cannot be done at all fails here."""
    first = next(results, _END)

    def rest() -> Iterator[Any]:
        with closing(results):  # type: ignore[type-var]
            if first is not _END:
                yield first
                yield from results

    return rest()


def _precision(choice: Choice) -> AbstractContextManager[None]:
    """Let ncnn compute as it was measured; it makes its networks at the first image."""
    if choice.way is None or choice.engine != "ncnn":
        return nullcontext()
    return ncnn_precision.ncnn_computes_in(choice.way.dtype == "fp16")
