"""Predictions of one YOLO object by the engine chosen for its weights; with `auto` by torch where that fails."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
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
        by_torch = partial(run_method, self._session, yolo, mode, method, args, kwargs)
        this = current()
        # Inside a run of the object it is part of that: its `track` calls its `predict`, and callbacks call anything.
        if not enabled() or (this is not None and this.session is self._session):
            return by_torch()
        given = exported_model.named_arguments(mode, args, kwargs)
        asked = self._asked(yolo, given)
        with self._lock:
            choice, key = self._choose(yolo, given, asked)
            try:
                twin = self._load(yolo, choice, key, asked)
            except Exception as error:
                choice = self._failed(choice, key, asked, error)
        if choice.way is None:
            self.choice = choice
            return by_torch()
        begin = partial(self._begin, yolo if twin is None else twin, choice, mode, method, given, asked)
        failed = partial(self._failed, choice, key, asked)
        if given.get("stream"):
            return self._stream(begin, by_torch, choice, failed)
        try:
            with self._precision(choice):
                found = begin()
        except YoloRocmError:
            raise
        except Exception as error:
            if says_out_of_memory(str(error)):  # torch may have none either, but has it once the engine is gone
                failed(error)
                return by_torch()
            found = by_torch()  # what torch cannot do either is no fault of the engine: a source, a callback
            failed(error)
            return found
        self.choice = choice
        return found

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
        while True:
            try:
                weights = self._weights.file(yolo)
                if self._made and next(iter(self._made))[0] != weights:
                    self._made.clear()
                    self._loaded.clear()
                key = weights, repr(asked)
                if key not in self._made:
                    self._made[key] = self._chooser.choose(weights.path, yolo.task, given.get("source"), asked)
                # Measuring takes minutes, in which another process may write other weights to the file.
                if self._weights.file(yolo) == weights:
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

    def _load(self, yolo: Any, choice: Choice, key: _Key | None, asked: Asked) -> Any:
        """Return the object that predicts in the place of `yolo`; None where that is `yolo` itself."""
        if choice.way is None or choice.file is None or key is None:
            return None
        if key not in self._loaded:
            # Asked again: the file may have been replaced since by what others have exported.
            file = self._chooser.made(key[0].path, choice.way, asked)
            assert file is not None
            self._loaded[key] = ExportedModel(file, yolo.task)
        self._loaded.move_to_end(key)
        while len(self._loaded) > _MOST_LOADED:
            self._loaded.popitem(last=False)
        return self._loaded[key].following(yolo)

    def _begin(
        self,
        yolo: Any,
        choice: Choice,
        mode: str,
        method: Callable[..., Any],
        given: dict[str, Any],
        asked: Asked,
    ) -> Any:
        assert choice.way is not None
        given = {name: value for name, value in given.items() if name not in exported_model.PRECISION}
        given = {**given, **choice.way.arguments(), "imgsz": asked.imgsz}
        call = method if choice.file is None else getattr(yolo, mode)
        return run_method(self._session, yolo, mode, call, (), given)

    def _precision(self, choice: Choice) -> AbstractContextManager[None]:
        """Let ncnn compute as it was measured; it makes its networks at the first image."""
        if choice.way is None or choice.engine != "ncnn":
            return nullcontext()
        return ncnn_precision.ncnn_computes_in(choice.way.dtype == "fp16")

    def _failed(self, choice: Choice, key: _Key | None, asked: Asked, error: Exception, forget: bool = True) -> Choice:
        """Forget what was chosen, also for later processes, and say that torch predicts.

        Raises:
            EngineError: The engine was asked for by name.
        """
        assert choice.way is not None
        torch, why = Choice(None, None, f"{choice.way.name} has failed"), f"{type(error).__name__}: {error}"
        if key is not None:
            with self._lock:
                if forget:
                    self._chooser.forget(key[0].path, asked)
                self._loaded.pop(key, None)
                self._made.pop(key)
                if self.engine == AUTO:
                    self._made[key] = torch
        if self.engine != AUTO:
            raise EngineError(f"{torch.why} at what torch predicts ({why}). engine=torch predicts this.") from error
        say("predict.failed", f"{torch.why} ({why}): torch predicts", warning=True)
        self.choice = torch
        return torch

    def _stream(
        self,
        begin: Callable[[], Iterator[Any]],
        by_torch: Callable[[], Any],
        choice: Choice,
        failed: Callable[..., Choice],
    ) -> Iterator[Any]:
        """Yield the results of a stream; one whose first item fails is torch's from its beginning."""
        try:
            with self._precision(choice):
                results: Any = begin()
                first = next(results, _END)
        except YoloRocmError:
            raise
        except Exception as error:
            is_memory = says_out_of_memory(str(error))
            if is_memory:
                failed(error)
            with closing(by_torch()) as results:
                first = next(results, _END)
                if not is_memory:
                    failed(error)
                if first is not _END:
                    yield first
                    yield from results
            return
        self.choice = choice
        with closing(results):
            if first is _END:
                return
            yield first
            try:
                yield from results
            except Exception as error:  # what was read of the source is gone: the caller has to begin again
                if self.engine == AUTO:
                    failed(error, forget=False)  # by the engine, the source or the caller: it is not known
                raise
