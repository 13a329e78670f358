"""Memory errors of AMD's libraries, put into the words that Ultralytics' retry with a smaller batch listens for.

In the first epoch Ultralytics halves the batch when an error says "out of memory", and for two messages of NVIDIA's
libraries. hipBLAS, rocBLAS and MIOpen say the same in other words.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def put_into_known_words(error: RuntimeError, is_out_of_memory: IsOutOfMemory) -> None:
    """Let a memory error that Ultralytics would not recognise say so in words that it does."""
    text = str(error)
    if HEARD not in text.lower() and is_memory_error(text, is_out_of_memory, _free_share()):
        # The frames below hold the activations that did not fit; the retry needs their memory.
        traceback.clear_frames(error.__traceback__)
        error.args = (f"GPU {HEARD}, said the library in its own words: {text}",)


def _free_share() -> float | None:
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    try:
        free, total = torch.cuda.mem_get_info()
    except RuntimeError:  # after some errors the device answers nothing any more
        return None
    return (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) / total


@contextmanager
def memory_errors_recognised(is_out_of_memory: IsOutOfMemory) -> Iterator[None]:
    """Let Ultralytics recognise memory errors of the forward and the backward pass of a training.

    The first runs inside the name `autocast`; there is no other way to get between it and the `except` that decides
    about the retry without changing the model, which ends up in checkpoints.

    Args:
        is_out_of_memory: Returns whether a message means that memory was used up.
    """
    if missing(MEMORY_ERRORS):
        yield
        return

    def forward(original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def autocast(*args: Any, **kwargs: Any) -> Iterator[None]:
            try:
                with original(*args, **kwargs):
                    yield
            except RuntimeError as error:
                put_into_known_words(error, is_out_of_memory)
                raise

        return autocast

    def backward(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                original(self, *args, **kwargs)
            except RuntimeError as error:
                del self  # the loss holds the graph of the whole step, and the error holds this frame
                put_into_known_words(error, is_out_of_memory)
                raise

        return run

    with (
        attribute("ultralytics.engine.trainer", "autocast").on(forward),
        attribute("torch:Tensor", "backward").on(backward),
    ):
        yield
