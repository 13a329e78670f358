"""Memory errors of AMD's libraries, put into the words that Ultralytics' retry with a smaller batch listens for.

In the first epoch Ultralytics halves the batch when an error says "out of memory", and for two messages of NVIDIA's
libraries. hipBLAS, rocBLAS and MIOpen say the same in other words.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .probes import MEMORY_ERRORS, missing

IsOutOfMemory = Callable[[str], bool]

HEARD: Final = "out of memory"  # what Ultralytics listens for, in any case of letters
# MIOpen gives these for many reasons, a workspace that did not fit among them (ROCm/MIOpen#47, status 7).
_VAGUE: Final = ("miopenStatusUnknownError", "miopenStatusInternalError")
_SCARCE: Final = 0.05


def is_memory_error(text: str, is_out_of_memory: IsOutOfMemory, free_share: float | None = None) -> bool:
    """Return whether an error message means that the GPU's memory was used up.

    Args:
        text: The message.
        is_out_of_memory: Returns whether a message is one that means nothing else.
        free_share: Part of the GPU's memory that was free; messages that can mean anything count when it is small.
    """
    if is_out_of_memory(text):
        return True
    return free_share is not None and free_share < _SCARCE and any(word in text for word in _VAGUE)


def translated(error: BaseException, is_out_of_memory: IsOutOfMemory) -> RuntimeError | None:
    """Return the error to raise in place of a memory error Ultralytics would not recognise; None for every other."""
    text = str(error)
    if not isinstance(error, RuntimeError) or HEARD in text.lower():
        return None
    if not is_memory_error(text, is_out_of_memory, _free_share()):
        return None
    # The frames below hold the activations that did not fit; the retry needs their memory.
    traceback.clear_frames(error.__traceback__)
    return RuntimeError(f"GPU {HEARD}, said the library in its own words: {text}")


def _free_share() -> float | None:
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    try:
        free, total = torch.cuda.mem_get_info()
    except RuntimeError:  # after some errors the device answers nothing any more
        return None
    return (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) / total


class _Listening:
    """A context manager of Ultralytics' own, whose way out translates memory errors."""

    def __init__(self, inner: AbstractContextManager[Any], is_out_of_memory: IsOutOfMemory) -> None:
        self._inner, self._says_so = inner, is_out_of_memory

    def __enter__(self) -> Any:
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        answer = self._inner.__exit__(kind, error, trace)
        better = None if error is None else translated(error, self._says_so)
        if better is not None:
            try:
                raise better from error
            finally:
                del better, error, trace  # else they hold this frame, and this frame holds them
        return answer


def memory_errors_recognised(is_out_of_memory: IsOutOfMemory) -> AbstractContextManager[None]:
    """Let Ultralytics recognise memory errors of the forward pass of a training.

    That pass runs inside the name `autocast`; there is no other way to get between it and the `except` that decides
    about the retry without changing the model, which ends up in checkpoints.

    Args:
        is_out_of_memory: Returns whether a message means that memory was used up.
    """
    if missing(MEMORY_ERRORS):
        return nullcontext()

    def listening(autocast: Any) -> Any:
        return lambda *args, **kwargs: _Listening(autocast(*args, **kwargs), is_out_of_memory)

    return attribute("ultralytics.engine.trainer", "autocast").on(listening)


def recognise_in_backward(trainer: Any, is_out_of_memory: IsOutOfMemory) -> None:
    """Let Ultralytics recognise memory errors of a trainer's backward pass, which starts from its gradient scaler."""
    scaler = getattr(trainer, "scaler", None)
    if scaler is None or "scale" in vars(scaler):
        return
    scale = scaler.scale
    last: list[weakref.ref[Any]] = []

    def listening(loss: Any) -> Any:
        for tensor in [each() for each in last]:
            if tensor is not None:  # what nobody has called holds the whole step
                vars(tensor).pop("backward", None)
        scaled = scale(loss)
        scaled.backward = _listening_backward(scaled, is_out_of_memory)
        last[:] = [weakref.ref(scaled)]
        return scaled

    scaler.scale = listening


def _listening_backward(scaled: Any, is_out_of_memory: IsOutOfMemory) -> Any:
    held = [scaled]  # holds the graph of the whole step, which holds this: given up when the backward pass begins

    def run(*args: Any, **kwargs: Any) -> None:
        tensor = held.pop()
        del tensor.backward
        try:
            tensor.backward(*args, **kwargs)
        except RuntimeError as error:
            del tensor
            better = translated(error, is_out_of_memory)
            if better is None:
                raise
            try:
                raise better from error
            finally:
                del better  # else it holds this frame, and this frame holds it

    return run
