"""What recording shares in training and in inference: where it can be done, what stands against it, how it fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import torch

from ..engines.devices import alive, on
from ..errors import DeviceLostError
from ..utils.error_text import first_line
from .attributes import Attributes
from .pool import GraphPool
from .signature import ModelSignature

DEVICES: Final = ["cuda"]  # types that have device graphs
OLDEST: Final = (2, 4)  # torch: what a recording that fails leaves behind can be put right from there on
MOST_SHAPES: Final = 4
CLEARLY: Final = 0.95  # a smaller gain does not count
# Of the same pass computed in other ways: libraries add up in another order, half precision rounds, memory that is not
# the pass's is far off.
LARGEST_DEPARTURE: Final = 2e-2

T = TypeVar("T")


class UndecidedError(Exception):
    """Nothing can be said yet."""


def recordable(device: torch.device) -> bool:
    """Return whether a device is of a type that has device graphs."""
    return device.type in DEVICES


def why_not(device: torch.device) -> str | None:
    """Return why nothing can be recorded on a device; None where it can be tried."""
    if not recordable(device):
        return f"{device.type} has no device graphs"
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return None if version >= OLDEST else f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST))}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as messages have it."""
    return "x".join(map(str, shape))


class HostEffects:
    """What passes do on the host since this was made, which a recorded one would not do.

    Args:
        model: The model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._drawn = torch.random.get_rng_state(), random.getstate()
        self._attributes: Attributes | None = None

    def settle(self) -> None:
        """Take the model's attributes after a first pass, which may set some once."""
        self._attributes = Attributes(self._model)

    def reason(self) -> str | None:
        """Return why the passes cannot be recorded; None where nothing stands against it."""
        if random.getstate() != self._drawn[1] or not torch.equal(torch.random.get_rng_state(), self._drawn[0]):
            return "the network draws random numbers on the host"
        changed = self._attributes.changed() if self._attributes is not None else None
        return None if changed is None else f"each pass changes {changed}, which a recorded one would not"


class Recorder:
    """Recorded passes of one model: the memory they share, and what they were recorded with.

    Args:
        setting: The preset's key that turns it off.
        signature_of: Returns what the passes depend on.
    """

    def __init__(self, setting: str, signature_of: Callable[[torch.nn.Module], ModelSignature]) -> None:
        self._setting, self._signature_of = setting, signature_of
        self._signature: ModelSignature | None = None
        self._pool: GraphPool | None = None
        self._is_over = False

    def forget(self) -> None:
        """Let go of every graph and its memory."""
        self._pool = self._signature = None

    def end(self, why: str) -> None:
        """Record nothing more of this model."""
        self._is_over = True
        self.forget()

    def is_outdated(self) -> bool:
        """Return whether the model is not what passes were recorded with."""
        return self._signature is None or not self._signature.is_safe

    def is_ready(self, model: torch.nn.Module) -> bool:
        """Return whether a call could be replayed; begin anew where the model is another."""
        if self._is_over:
            return False
        if self.is_outdated():
            self.forget()
            try:
                self._signature = self._signature_of(model)
            except (AttributeError, KeyError) as error:  # modules that are none of Python's, as of TorchScript
                self.end(f"a module has no {error}")
                return False
        return self._signature is not None and not self._signature.is_watched

    def attempt(
        self,
        model: torch.nn.Module,
        device: torch.device,
        decide: Callable[[], tuple[T | None, str]],
        is_recorded: Callable[[T], Any],
    ) -> tuple[T | None, str, bool]:
        """Return what `decide` returns, and whether it has succeeded; a model keeps nothing of what is not recorded.

        Raises:
            DeviceLostError: The device does not answer any more.
            UndecidedError: As `decide` raises it.
        """
        with on(device):
            result, before = None, Attributes(model)
            try:
                result, why = decide()
            except (DeviceLostError, UndecidedError):
                raise
            except Exception as error:  # as a runtime, a compiler or a model of the user raises it
                why = first_line(error)
                if not alive(str(device)):
                    text = f"{device} does not answer any more since a device graph was recorded: {why}. "
                    raise DeviceLostError(f"{text}Start again with rocm.{self._setting}=off.") from error
                torch.cuda.empty_cache()
                return None, why, False
            finally:
                if result is None or not is_recorded(result):
                    before.put_back()
            torch.cuda.empty_cache()
        return result, why, True
