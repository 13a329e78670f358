"""What is known to break data-loading workers, found before they start and said in one message."""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.context as mp_context
import pickle
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

from ..errors import LoaderError
from .main_guard import WITHOUT_WORKERS, main_problem

_MAIN: Final = ("__main__", "__mp_main__")


def check_before_start(parts: Mapping[str, Any], *, method: str, shared: Collection[Any] = ()) -> bool:
    """Raise if workers that are about to start are known to fail. What is sent to them is pickled once, to nowhere.

    Args:
        parts: What is sent to the workers, by the name messages use for it, e.g. `{"dataset": dataset}`.
        method: Start method: `spawn`, `forkserver` or `fork`.
        shared: Lists inside the parts that are not pickled but shared.

    Returns:
        Whether workers have to import the main module.

    Raises:
        LoaderError: The first problem found.
    """
    if problem := method_problem(method):
        raise LoaderError(problem)
    if method == "fork":
        return False
    trials = {name: _Trial(part, shared) for name, part in parts.items()}
    for name, trial in trials.items():
        if trial.gpu or trial.error is not None:
            raise LoaderError(_explain(trial, parts[name], name, shared))
    of_main = next((f"{name}: {trial.main}" for name, trial in trials.items() if trial.main), "")
    if of_main and (problem := main_problem()):
        raise LoaderError(f"{problem} Workers need it for {of_main}.")
    return bool(of_main)


def method_problem(method: str) -> str | None:
    """Explain why this process cannot start workers by a start method."""
    if method not in multiprocessing.get_all_start_methods():
        return f"This system cannot start workers by {method}: use the start method spawn (loader.context: spawn)."
    torch = sys.modules.get("torch")
    if method != "fork" or torch is None or not torch.cuda.is_initialized():
        return None
    runtime = "HIP" if torch.version.hip else "CUDA"
    return (
        f"Workers cannot be forked any more: {runtime} has started in this process, and a forked copy of it hangs or "
        "crashes because its threads and locks do not survive the fork. Use the start method spawn "
        f"(loader.context: spawn), or forkserver, {WITHOUT_WORKERS}."
    )


def needs_main_module(obj: Any) -> bool:
    """Return whether a process that receives `obj` needs a class or function of the main module."""
    return bool(_Trial(obj).main)


class _Trial(pickle.Pickler):
    """Pickles as multiprocessing does, to nowhere: arrays are not copied, tensors not moved into shared memory.

    Attributes:
        error: Why it cannot be pickled.
        gpu: A tensor on a GPU in it, in words.
        main: The first class or function of the main module in it.
    """

    def __init__(self, obj: Any, left_out: Collection[Any] = ()) -> None:
        super().__init__(types.SimpleNamespace(write=len), protocol=5, buffer_callback=lambda _: None)
        # A plain dictionary is quicker than the ChainMap that has it.
        self.dispatch_table = dict(ForkingPickler(io.BytesIO()).dispatch_table)
        self._left_out = {id(one) for one in left_out}
        self.gpu = self.main = ""
        self.error: Exception | None = None
        with _as_if_spawning():
            try:
                self.dump(obj)
            except Exception as error:  # whatever an object's own reduction raises
                self.error = error

    def persistent_id(self, obj: Any) -> str | None:
        """Leave out what is shared."""
        return "shared" if id(obj) in self._left_out else None

    def reducer_override(self, obj: Any) -> Any:
        """Note what matters; a tensor becomes a leaf."""
        torch = sys.modules.get("torch")
        if torch is None or not (isinstance(obj, torch.Tensor) or torch.is_storage(obj)):
            if isinstance(obj, (type, types.FunctionType)) and obj.__module__ in _MAIN:
                self.main = self.main or f"{obj.__module__}.{obj.__qualname__}"
            return NotImplemented
        if obj.device.type not in ("cpu", "meta"):
            self.gpu = f"a tensor on {obj.device}"
        if getattr(obj, "requires_grad", False) and not obj.is_leaf:
            raise pickle.PicklingError("a tensor in the middle of a gradient graph; detach() it")
        return list, ()


@contextmanager
def _as_if_spawning() -> Iterator[None]:
    """Let locks, queues and pipes of multiprocessing be pickled, as they may be while a process is being started."""
    before = mp_context.get_spawning_popen()
    nobody: Any = types.SimpleNamespace(duplicate_for_child=lambda handle: handle, DupFd=lambda handle: handle)
    mp_context.set_spawning_popen(nobody)
    try:
        yield
    finally:
        mp_context.set_spawning_popen(before)


def _explain(trial: _Trial, obj: Any, name: str, shared: Collection[Any]) -> str:
    """Say in one message why an object cannot be sent, and which attribute of it is the cause."""
    if trial.gpu:
        path, cause = _attribute(obj, name, trial, lambda one: bool(one.gpu), shared)
        return (
            f"{path} holds {cause.gpu}. Workers would have to start the GPU runtime to receive it. Keep what the data "
            f"set holds on the CPU (`.cpu()`) and move batches in the training loop, {WITHOUT_WORKERS}."
        )
    path, cause = _attribute(obj, name, trial, lambda one: one.error is not None, shared)
    return (
        f"{path} cannot be sent to data-loading workers: {cause.error}. Workers receive it by pickle, which takes "
        "plain data and what a module defines at its top level. Use a function or class that can be imported, leave "
        f"it out in `__getstate__`, {WITHOUT_WORKERS}."
    )


def _attribute(
    obj: Any, name: str, trial: _Trial, is_wrong: Callable[[_Trial], bool], shared: Collection[Any]
) -> tuple[str, _Trial]:
    """Follow what is wrong from attribute to attribute; return the path of the innermost one, and its trial."""
    seen = [*shared, obj]  # what leads back to them is not what is wrong
    while True:
        for key, value in getattr(obj, "__dict__", {}).items():
            part = _Trial(value, seen)
            if is_wrong(part):
                seen.append(value)
                name, obj, trial = f"{name}.{key}", value, part
                break
        else:
            return name, trial
