"""What is known to break data-loading workers, found before they start and said in one message.

Every `*_problem` function returns None, or what is wrong, why, and what to change; `check_before_start` asks them all.
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import multiprocessing.context as mp_context
import os
import pickle
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Final

from ..errors import LoaderError
from . import resources
from .main_guard import WITHOUT_WORKERS as _WITHOUT
from .main_guard import main_problem

_MAIN: Final = ("__main__", "__mp_main__")


def check_before_start(
    parts: Mapping[str, Any],
    *,
    method: str,
    workers: int,
    prefetch: int = 2,
    batch_bytes: int = 0,
    shared: Collection[Any] = (),
    root: Path = resources.ROOT,
) -> bool:
    """Raise if workers that are about to start are known to fail. What is sent to them is pickled once, to nowhere.

    Args:
        parts: What is sent to the workers, by the name messages use for it, e.g. `{"dataset": dataset}`.
        method: Start method: `spawn`, `forkserver` or `fork`.
        workers: Number of workers.
        prefetch: Batches each worker holds ready.
        batch_bytes: Bytes of one batch; 0 if unknown.
        shared: Lists inside the parts that are not pickled but shared.
        root: Top of the file system /dev/shm is looked for in.

    Returns:
        Whether workers have to import the main module.

    Raises:
        LoaderError: The first problem found.
    """
    _refuse(shm_problem(batch_bytes, workers, prefetch, root))
    _refuse(method_problem(method))
    if method == "fork":
        return False
    needs = ""
    for name, part in parts.items():
        trial = _Trial(part, shared)
        _refuse(_explain(trial, part, name, shared))
        if trial.main and not needs:
            path, found = _culprit(part, name, lambda one: one.main, shared)
            needs = f"{path}: {_describe(found)}"
    if needs and (problem := main_problem()):
        raise LoaderError(f"{problem} Workers need it for {needs}.")
    return bool(needs)


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise LoaderError(problem)


def shm_problem(batch_bytes: int, workers: int, prefetch: int, root: Path = resources.ROOT) -> str | None:
    """Explain where /dev/shm is too small for the batches that workers hold ready and the one being read."""
    free = resources.shm_free(root)
    need = (workers * prefetch + 1) * batch_bytes
    if free is None or workers == 0 or need <= free:
        return None
    room = max(0, free // batch_bytes - 1)
    fitting = (
        f"workers={room // prefetch}" if room >= prefetch else f"workers=1 prefetch={room}" if room else "workers=0"
    )
    size = 2 ** max(6, (2 * need // 2**20).bit_length())  # MB, a power of two of at least twice the need
    return (
        f"/dev/shm has {free / 2**20:.0f} MB free, but {workers} workers with {prefetch} batches of "
        f"{batch_bytes / 2**20:.1f} MB each, and the batch in use, need {need / 2**20:.0f} MB; a worker that runs out "
        f"of it dies with a bus error. Start the container with --shm-size={size}m or --ipc=host, or use less of it: "
        f"{fitting} fits."
    )


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
        f"(loader.context: spawn), or forkserver, {_WITHOUT}."
    )


def needs_main_module(obj: Any) -> bool:
    """Return whether a process that receives `obj` needs a class or function of the main module."""
    return _Trial(obj).main


def pickle_problem(obj: Any, name: str = "dataset") -> str | None:
    """Explain why `obj` cannot be sent to a worker, and name the part of it that is the cause.

    Args:
        obj: A data set, a collate function or whatever else is sent.
        name: What the message calls it.
    """
    return _explain(_Trial(obj), obj, name)


def _explain(trial: _Trial, obj: Any, name: str, shared: Collection[Any] = ()) -> str | None:
    if trial.gpu:
        path, found = _culprit(obj, name, lambda one: one.gpu, shared)
        return (
            f"{path} is {_describe(found)}. Workers would have to start the GPU runtime to receive it. Keep what the "
            f"data set holds on the CPU (`.cpu()`) and move batches in the training loop, {_WITHOUT}."
        )
    if trial.error is None:
        return None
    path, found = name, obj
    if not isinstance(trial.error, RecursionError):
        path, found = _culprit(obj, name, lambda one: one.error is not None, shared)
    return (
        f"{path} cannot be sent to data-loading workers: {_describe(found)} ({_Trial(found).error}). Workers receive "
        "it by pickle, which takes plain data and what a module defines at its top level. Use a function or class that "
        f"can be imported, leave it out in `__getstate__`, {_WITHOUT}."
    )


class _Trial(pickle.Pickler):
    """Pickles as multiprocessing does, to nowhere: arrays are not copied, tensors not moved into shared memory.

    Attributes:
        error: Why it cannot be pickled.
        gpu: There is a tensor on a GPU in it.
        main: The main module defines something in it.
    """

    def __init__(self, obj: Any, left_out: Collection[Any] = ()) -> None:
        super().__init__(types.SimpleNamespace(write=len), protocol=5, buffer_callback=lambda _: None)
        # A plain dictionary is quicker than the ChainMap that has it.
        self.dispatch_table = dict(ForkingPickler(io.BytesIO()).dispatch_table)
        self._left_out = {id(one) for one in left_out}
        self.gpu = self.main = False
        self.error: Exception | None = None
        with _as_if_spawning():
            try:
                self.dump(obj)
            except Exception as error:  # whatever an object's own reduction raises
                self.error = error

    def persistent_id(self, obj: Any) -> str | None:
        """Leave out what is shared."""
        return "shared" if self._left_out and id(obj) in self._left_out else None

    def reducer_override(self, obj: Any) -> Any:
        """Note what matters; a tensor becomes a leaf."""
        if not _is_tensor(obj):
            named = isinstance(obj, (type, types.FunctionType))
            self.main = self.main or (named and obj.__module__ in _MAIN)
            return NotImplemented
        self.gpu = self.gpu or obj.device.type not in ("cpu", "meta")
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


def _culprit(obj: Any, name: str, wrong: Callable[[_Trial], bool], shared: Collection[Any] = ()) -> tuple[str, Any]:
    """Follow what is wrong from part to part; return the path and the innermost one."""
    path, found = name, obj
    seen = [*shared, obj]  # what leads back to them is not what is wrong
    while True:
        for step, part in _parts(found):
            if not any(part is one for one in seen) and wrong(_Trial(part, seen)):
                seen.append(part)
                path, found = path + step, part
                break
        else:
            return path, found


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled with an object, with the step that leads to it."""
    if isinstance(obj, dict):
        yield from ((f"[{key!r}]", value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from ((f"[{i}]", value) for i, value in enumerate(obj))
    elif isinstance(obj, functools.partial):
        yield from ((f".{key}", getattr(obj, key)) for key in ("func", "args", "keywords"))
    elif isinstance(obj, types.MethodType):
        yield ".__self__", obj.__self__
    else:
        try:
            state = (*obj.__reduce_ex__(4), None, None)[2]
        except Exception:  # it is the culprit itself
            return
        for half in state if isinstance(state, tuple) else (state,):  # attributes, slots
            if isinstance(half, dict):
                yield from ((f".{key}", value) for key, value in half.items())


def _is_tensor(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and (isinstance(obj, torch.Tensor) or torch.is_storage(obj))


def _describe(obj: Any) -> str:
    if _is_tensor(obj):
        return f"a tensor on {obj.device}"
    if isinstance(obj, types.FunctionType):
        where = f"defined in {os.path.basename(obj.__code__.co_filename)}:{obj.__code__.co_firstlineno}"
        return f"a lambda {where}" if obj.__name__ == "<lambda>" else f"the function {obj.__qualname__} {where}"
    kind, known = ("the class", obj) if isinstance(obj, type) else ("an object of type", type(obj))
    return f"{kind} {known.__module__}.{known.__qualname__}"
