"""The run that is going on in a thread, as modules below `run` see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..preset.schema import Settings

if TYPE_CHECKING:  # it imports torch, and a preset's variables come first
    from ..data.policy import LoaderPolicy


class OngoingRun(Protocol):
    """What others may ask of a `Run`; it alone changes its attributes."""

    session: Any
    device: Any
    workers: int | None
    settings: Settings
    trainings: list[Any]
    awaits_trainer: bool

    @property
    def open_trainings(self) -> list[Any]:
        """Trainings that are going on."""

    def command(self, device: Any = None) -> Any:
        """Return the run as the command line has it."""

    def training_of(self, trainer: Any) -> Any:
        """Return what is held of a trainer, or None."""

    def of_trainer(self, trainer: Any) -> OngoingRun:
        """Begin a run with a trainer, which has its arguments."""

    def applied(self) -> AbstractContextManager[None]:
        """Apply the preset to this process."""

    def around(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """Return a trainer's `train` with the run around it."""

    def on_trainer_created(self, trainer: Any) -> None:
        """Follow a trainer that does not announce itself."""

    def loader_policy(self) -> LoaderPolicy:
        """Return how its loaders load."""


CURRENT: Final[ContextVar[OngoingRun | None]] = ContextVar("yolo_rocm_run", default=None)


def current() -> OngoingRun | None:
    """Return the run that is going on in this thread."""
    return CURRENT.get()
