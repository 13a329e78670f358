"""What is known to break data-loading workers, found before they start and said in one message.

Every `*_problem` function returns None, or what is wrong, why, and what to change; `check_before_start` asks them all.
"""

from __future__ import annotations

import functools
import io
import itertools
import multiprocessing
import multiprocessing.context as mp_context
import os
import pickle
import pickletools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Final

from ..errors import LoaderError
from . import resources
from .main_guard import WITHOUT_WORKERS as _WITHOUT
from .main_guard import main_guard_problem as main_guard_problem

_MAIN: Final = ("__main__", "__mp_main__")
# The ways in which the protocols of pickle write the name of a module, before its class or function.
_MAIN_MARKS: Final = tuple(
    prefix + name.encode() + suffix
    for name in _MAIN
    for prefix, suffix in (
        (b"c", b"\n"),
        (bytes((0x8C, len(name))), b""),
        (b"X" + len(name).to_bytes(4, "little"), b""),
    )
)
# Lists and dictionaries longer than this, of elements of one type, are looked at by samples unless asked otherwise.
_LONG: Final = 1000
_SAMPLES: Final = 250
_CONTAINERS: Final = (list, tuple, dict, set, frozenset)


def check_before_start(
    parts: Mapping[str, Any],
    *,
    method: str,
    workers: int,
    prefetch: int = 2,
    batch_bytes: int = 0,
    always_main: bool = True,
    root: Path = resources.ROOT,
) -> None:
    """Raise if workers that are about to start are known to fail. What is sent to them is pickled once, to nowhere.

    Args:
        parts: What is sent to the workers, by the name messages use for it, e.g. `{"dataset": dataset}`.
        method: Start method: `spawn`, `forkserver` or `fork`.
        workers: Number of workers; nothing can go wrong with 0.
        prefetch: Batches each worker holds ready.
        batch_bytes: Bytes of one batch; 0 if unknown.
        always_main: Workers import the main module whether they need it or not, as those of multiprocessing do.
        root: Top of the file system /dev/shm is looked for in.

    Raises:
        LoaderError: The first problem found.
    """
    if workers == 0:
        return
    _refuse(shm_problem(batch_bytes, workers, prefetch, root))
    if method == "fork":
        _refuse(fork_problem())
        return
    for name, part in parts.items():
        _refuse(pickle_problem(part, name))
    needs = [need for name, part in parts.items() if (need := main_reference(part, name)) is not None]
    problem = main_guard_problem(uses_main=bool(needs)) if needs or always_main else None
    _refuse(f"{problem} Workers need it for {needs[0]}." if problem and needs else problem)


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise LoaderError(problem)


def shm_problem(batch_bytes: int, workers: int, prefetch: int, root: Path = resources.ROOT) -> str | None:
    """Say whether /dev/shm is too small for the batches that workers hold ready and the one being read."""
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


def fork_problem() -> str | None:
    """Say whether workers cannot be forked from this process."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return "This system cannot fork workers: use the start method spawn (loader.context: spawn)."
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    runtime = "HIP" if torch.version.hip else "CUDA"
    return (
        f"Workers cannot be forked any more: {runtime} has started in this process, and a forked copy of it hangs or "
        "crashes because its threads and locks do not survive the fork. Use the start method spawn "
        f"(loader.context: spawn), or forkserver, {_WITHOUT}."
    )


def references_main(payload: bytes) -> bool:
    """Tell whether a pickle needs a class or function of the main module; nothing is unpickled for it."""
    if b"_main__" not in payload or not any(mark in payload for mark in _MAIN_MARKS):
        return False  # known at the speed of memory; below, a megabyte takes a third of a second
    last: deque[str] = deque(maxlen=2)  # the strings pushed last: a global is always a module, then a name
    memo: dict[int, str] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(payload):
        if "UNICODE" in opcode.name:
            last.append(argument)
        elif opcode.name == "MEMOIZE" or "PUT" in opcode.name:  # numbers what is no string too, which nobody asks for
            memo[len(memo) if argument is None else int(argument)] = last[-1] if last else ""
        elif "GET" in opcode.name:
            last.append(memo.get(int(argument), ""))
        elif opcode.name in ("GLOBAL", "STACK_GLOBAL"):
            module = argument.split(" ")[0] if opcode.name == "GLOBAL" else last[0]
            if module in _MAIN:
                return True
    return False


def main_reference(obj: Any, name: str = "dataset") -> str | None:
    """Name the first thing that sending `obj` needs from the main module, or return None."""
    if not _Attempt(obj).main:
        return None
    path, found = _search(obj, name, _of_main) or (name, obj)
    return f"{path}: {_describe(found)}"


def pickle_problem(obj: Any, name: str = "dataset", *, exact: bool = False) -> str | None:
    """Say whether `obj` cannot be sent to a spawned worker, and which part of it is the cause.

    Args:
        obj: A data set, a collate function or whatever else is sent.
        name: What the message calls it.
        exact: Try every element of long lists, where samples do otherwise; worth it once workers have failed to start.
    """
    attempt = _Attempt(obj, exact=exact)
    if attempt.gpu:
        path, found = _search(obj, name, _on_gpu) or (name, obj)
        return (
            f"{path} is {_describe(found)}. Workers would have to start the GPU runtime to receive it. Keep what the "
            f"data set holds on the CPU (`.cpu()`) and move batches in the training loop, {_WITHOUT}."
        )
    if attempt.error is None:
        return None

    def fails(part: Any) -> bool:
        return _Shallow(part, attempt.dispatch_table).error is not None

    path, found = _search(obj, name, fails) or (name, obj)
    known = isinstance(found, (types.FunctionType, type))
    reason = "" if known else f" ({_Shallow(found).error or attempt.error})"
    return (
        f"{path} cannot be sent to data-loading workers: {_describe(found)}{reason}. Workers receive it by pickle, "
        "which takes plain data and what a module defines at its top level. Use a function or class that can be "
        f"imported, leave it out in `__getstate__`, {_WITHOUT}."
    )


class _Attempt(pickle.Pickler):
    """Pickles as multiprocessing does, to nowhere: arrays are not copied, tensors not moved into shared memory."""

    def __init__(self, obj: Any, table: Mapping[type, Any] | None = None, *, exact: bool = False) -> None:
        super().__init__(types.SimpleNamespace(write=len), protocol=5, buffer_callback=lambda _: None)
        self.dispatch_table = table or _reducers()
        self.whole, self.exact, self.gpu, self.main = obj, exact, False, False
        self.error: Exception | None = None
        with _as_if_spawning():
            try:
                self.dump(obj)
            except Exception as error:  # whatever an object's own reduction raises
                self.error = error

    def reducer_override(self, obj: Any) -> Any:
        """Note what matters here; tensors become leaves, long lists in an object samples of themselves."""
        if _is_tensor(obj):
            self.gpu = self.gpu or _on_gpu(obj)
            if getattr(obj, "requires_grad", False) and not obj.is_leaf:
                raise pickle.PicklingError("a tensor in the middle of a gradient graph; detach() it")
            return list, ()
        self.main = self.main or _of_main(obj)
        state = getattr(obj, "__dict__", None)
        if self.exact or type(state) is not dict or type(obj) in self.dispatch_table:
            return NotImplemented
        if not any(_is_long(value) for value in state.values()):
            return NotImplemented
        parts = obj.__reduce_ex__(4)
        if not isinstance(parts, tuple) or len(parts) < 3 or type(parts[2]) is not dict:
            return NotImplemented
        sampled = {
            key: [part for _, part in _items(value, False)] for key, value in parts[2].items() if _is_long(value)
        }
        return (*parts[:2], {**parts[2], **sampled}, *parts[3:])


def _reducers() -> dict[type, Any]:
    """Return how multiprocessing pickles special types: a plain dictionary, quicker than the ChainMap that has it."""
    return dict(ForkingPickler(io.BytesIO()).dispatch_table)


class _Shallow(_Attempt):
    """Tries an object by itself, without what it holds."""

    def persistent_id(self, obj: Any) -> str | None:
        """Stand for everything but the object itself."""
        return None if obj is self.whole else "held"


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


def _search(obj: Any, name: str, wrong: Callable[[Any], bool]) -> tuple[str, Any] | None:
    """Return path and object of the first thing sent with `obj` that is wrong; samples of long lists come first."""
    table = _reducers()
    for exact in (False, True):
        queue, seen = deque([(name, obj)]), {id(obj): obj}  # keeps what it has seen, so that no id is given twice
        while queue:
            path, part = queue.popleft()
            if type(part) not in _CONTAINERS and wrong(part):
                return path, part
            if len(path) > _LONG:  # deeper than pickle goes
                continue
            for step, child in _held(part, exact, table):
                if id(child) not in seen and not _is_plain(child):
                    seen[id(child)] = child
                    queue.append((path + step, child))
    return None


def _held(obj: Any, exact: bool, table: Mapping[type, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled with an object, with the step that leads to it; the class of an object is no step."""
    if isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)) or _is_tensor(obj):
        return
    if type(obj) in _CONTAINERS:
        yield from ((f"[{key!r}]", value) for key, value in _items(obj, exact))
        if type(obj) is dict:
            yield from ((f" (key {key!r})", key) for key in itertools.islice(obj, None if exact else _LONG))
        return
    named: dict[str, Any] = {}
    if isinstance(obj, tuple):  # a named one
        yield "", type(obj)
        yield from ((f"[{i}]", value) for i, value in enumerate(obj))
    elif isinstance(obj, functools.partial):
        named = {"func": obj.func, "args": obj.args, "keywords": obj.keywords}
    elif isinstance(obj, types.MethodType):
        named = {"__self__": obj.__self__}
    else:
        with _as_if_spawning():
            try:
                reduce = table.get(type(obj))
                parts = obj.__reduce_ex__(4) if reduce is None else reduce(obj)
            except Exception:  # it is the culprit itself, which the caller has found
                return
        if isinstance(parts, str):
            return
        function, arguments, state, elements, pairs = (*parts, None, None, None)[:5]
        yield "", function
        for i, value in enumerate(arguments):
            by_name = isinstance(value, (type, types.FunctionType))
            yield ("" if by_name else f".__reduce__()[1][{i}]"), value
        for half in state if type(state) is tuple else (state,):
            named.update(half if type(half) is dict else {"__getstate__()": half})
        yield from ((f"[{i}]", value) for i, value in enumerate(elements or ()))
        yield from ((f"[{key!r}]", value) for key, value in pairs or ())
    yield from ((f".{key}", value) for key, value in named.items())


def _is_plain(value: Any) -> bool:
    """Tell whether a value can always be sent and holds nothing else; the rest is worth a look."""
    if isinstance(value, (str, bytes, int, float, complex, type(None))):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


def _is_long(value: Any) -> bool:
    return type(value) in (list, tuple, dict) and len(value) > _LONG


def _items(holder: Any, exact: bool) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of a container; of a long one whose values are of one type, evenly spread samples."""
    values = holder.values() if type(holder) is dict else holder
    step = 1
    if not exact and _is_long(holder) and len(set(map(type, values))) == 1:
        step = len(holder) // _SAMPLES
    yield from itertools.islice(holder.items() if type(holder) is dict else enumerate(holder), None, None, step)


def _is_tensor(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and (isinstance(obj, torch.Tensor) or torch.is_storage(obj))


def _on_gpu(obj: Any) -> bool:
    return _is_tensor(obj) and obj.device.type not in ("cpu", "meta")


def _of_main(obj: Any) -> bool:
    return isinstance(obj, (type, types.FunctionType)) and obj.__module__ in _MAIN


def _describe(obj: Any) -> str:
    if _is_tensor(obj):
        return f"a tensor on {obj.device}"
    where = ""
    if isinstance(obj, types.FunctionType):
        where = f" defined in {os.path.basename(obj.__code__.co_filename)}:{obj.__code__.co_firstlineno}"
        if obj.__name__ == "<lambda>":
            return f"a lambda{where}"
    kind = "the class" if isinstance(obj, type) else "the function" if where else "an object of type"
    known = obj if isinstance(obj, (type, types.FunctionType)) else type(obj)
    outer, inside, _ = known.__qualname__.rpartition(".<locals>.")
    return f"{kind} {known.__module__}.{known.__qualname__}{f', made inside {outer}(),' if inside else ''}{where}"
