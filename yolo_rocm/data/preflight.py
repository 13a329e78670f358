"""What is known to break data-loading workers, found before they start and said in one message."""

from __future__ import annotations

import io
import multiprocessing.context as mp_context
import pickle
import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch

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
    if method == "fork":
        check_fork()
        return False
    trials = {name: _Trial(part, shared) for name, part in parts.items()}
    for name, trial in trials.items():
        if trial.error is not None:
            path, error = _innermost(parts[name], name, trial.error, shared)
            raise LoaderError(
                f"{path} cannot be sent to data-loading workers: {error}. Workers receive it by pickle, which takes "
                "plain data and what a module defines at its top level. Use a function or class that can be imported, "
                f"leave it out in `__getstate__`, {WITHOUT_WORKERS}."
            )
    of_main = next((f"{name}: {trial.main}" for name, trial in trials.items() if trial.main), "")
    if of_main and (problem := main_problem()):
        raise LoaderError(f"{problem} Workers need it for {of_main}.")
    return bool(of_main)


def check_fork() -> None:
    """Raise if this process cannot be forked any more."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        runtime = "HIP" if torch.version.hip else "CUDA"
        raise LoaderError(
            f"Workers cannot be forked any more: {runtime} has started in this process, and a forked copy of it hangs "
            "or crashes because its threads and locks do not survive the fork. Use the start method spawn or "
            f"forkserver, {WITHOUT_WORKERS}."
        )


def needs_main_module(obj: Any) -> bool:
    """Return whether a process that receives `obj` needs a class or function of the main module."""
    return bool(_Trial(obj).main)


class _Trial(pickle.Pickler):
    """Pickles as multiprocessing does, to nowhere: arrays are not copied, tensors not moved into shared memory.

    Attributes:
        error: Why it cannot be sent.
        main: The first class or function of the main module in it.
    """

    def __init__(self, obj: Any, left_out: Collection[Any] = ()) -> None:
        super().__init__(types.SimpleNamespace(write=len), protocol=5, buffer_callback=lambda _: None)
        # A plain dictionary is quicker than the ChainMap that has it.
        self.dispatch_table = dict(ForkingPickler(io.BytesIO()).dispatch_table)
        self._left_out = {id(one) for one in left_out}
        self.main = ""
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
        if not (isinstance(obj, torch.Tensor) or torch.is_storage(obj)):
            if isinstance(obj, (type, types.FunctionType)) and obj.__module__ in _MAIN:
                self.main = self.main or f"{obj.__module__}.{obj.__qualname__}"
            return NotImplemented
        if obj.device.type not in ("cpu", "meta"):
            raise pickle.PicklingError(
                f"workers would have to start the GPU runtime for a tensor on {obj.device}; keep it on the CPU "
                "(`.cpu()`) and move batches in the training loop"
            )
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


def _innermost(obj: Any, name: str, error: Exception, shared: Collection[Any]) -> tuple[str, Exception]:
    """Follow what cannot be sent from attribute to attribute; return the path of the innermost one, and its error."""
    seen = [*shared, obj]  # what leads back to them is not what is wrong
    while True:
        for key, value in getattr(obj, "__dict__", {}).items():
            part = _Trial(value, seen)
            if part.error is not None:
                seen.append(value)
                name, obj, error = f"{name}.{key}", value, part.error
                break
        else:
            return name, error
