"""What recording shares in training and in inference: where it can be done, what stands against it, how it fails."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import torch

from ..engines.devices import alive, on
from ..errors import DeviceLostError
from ..utils.error_text import first_line
from .attributes import Attributes
from .captured import Run
from .pool import GraphPool
from .signature import InferenceSignature, ModelSignature, TrainingSignature

DEVICES: Final = ["cuda"]  # types that have device graphs
OLDEST: Final = (2, 4)  # torch: what a recording that fails leaves behind can be put right from there on
MOST_SHAPES: Final = 4
CLEARLY: Final = 0.95  # a smaller gain does not count
# Of the same pass computed in other ways: libraries add up in another order, half precision rounds, memory that is not
# the pass's is far off.
LARGEST_DEPARTURE: Final = 2e-2


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
        changed = None if self._attributes is None else self._attributes.changed()
        return None if changed is None else f"each pass changes {changed}, which a recorded one would not"


class Recorder(ABC):
    """Recorded passes of one model: what was decided for each shape, and what the passes were recorded with.

    Args:
        say: Called with each decision.

    Attributes:
        setting: The preset's key that turns it off.
        over: How the line begins that says that nothing more is recorded.
        signature_of: Returns what the passes depend on.
    """

    setting: ClassVar[str]
    over: ClassVar[str]
    signature_of: ClassVar[type[TrainingSignature | InferenceSignature]]

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._shapes: dict[Any, Any] = {}
        self._signature: ModelSignature | None = None
        self._pool: GraphPool | None = None
        self._is_over = False

    @abstractmethod
    def is_recorded(self, decision: Any) -> bool:
        """Return whether a decision about a shape, or what stands for one that is to come, is a recorded pass."""

    @property
    def recorded(self) -> int:
        """How many shapes are recorded."""
        return sum(map(self.is_recorded, self._shapes.values()))

    def forget(self) -> None:
        """Let go of every graph and its memory."""
        self._pool = self._signature = None

    def end(self, why: str) -> None:
        """Record nothing more of this model, and say why."""
        self._is_over = True
        self.forget()
        self._say(f"{self.over}: {why}")

    def is_ready(self, model: torch.nn.Module) -> bool:
        """Return whether a call could be replayed; begin anew where the model is another."""
        if self._is_over or (self._pool is not None and self._pool.is_busy):
            return False
        if self._signature is None or not self._signature.is_safe:
            self.forget()
            try:
                self._signature = self.signature_of(model)
            except (AttributeError, KeyError) as error:  # modules that are none of Python's, as of TorchScript
                self.end(f"a module has no {error}")
                return False
        return not self._signature.is_watched

    def settled(self, run: Run, x: torch.Tensor) -> Any:
        """Compute a pass that is not replayed; what it has changed in modules is how they are from now on."""
        result = run(x)
        if self._signature is not None:
            self._signature.settle()
        return result

    def pool_on(self, device: torch.device) -> GraphPool:
        """Return the memory that all passes of the model share."""
        self._pool = self._pool or GraphPool(device)
        return self._pool

    def attempt(
        self, model: torch.nn.Module, device: torch.device, decide: Callable[[], tuple[Any, str]]
    ) -> tuple[Any, str] | str:
        """Return what `decide` returns, or why it has failed; a model keeps nothing of what is not recorded.

        Raises:
            DeviceLostError: The device does not answer any more.
        """
        with on(device):
            decision, before = None, Attributes(model)
            try:
                decision, why = decide()
                return decision, why
            except DeviceLostError:
                raise
            except Exception as error:  # as a runtime, a compiler or a model of the user raises it
                why = first_line(error)
                if not alive(device):
                    text = f"{device} does not answer any more since a device graph was recorded: {why}. "
                    raise DeviceLostError(f"{text}Start again with rocm.{self.setting}=off.") from error
                return why
            finally:
                if not self.is_recorded(decision):
                    before.put_back()
