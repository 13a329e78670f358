"""One way to compute a training step, and what it has shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Literal

from ..norm.patch import NormPatch
from .busy import Busy
from .peak import Peak, highest

OFF: Final = "off"
GraphMode = Literal["off", "auto", "on"]

Piece = Callable[[str], AbstractContextManager[Any]]  # called with the device type


@dataclass
class Way:
    """One way to compute a step, and what its turns have shown."""

    kind: str  # what computes it
    channels_last: bool | None  # layout of images and weights; None: that of the faster way it follows
    pieces: Sequence[Piece] = ()
    patches: Sequence[Any] = ()  # ours, each with its planner and its report
    compiled: bool = False  # by Ultralytics' own compile mode
    graph: GraphMode = OFF  # device graphs of the network: off, on, or auto as measured
    follows: str = ""  # kind whose faster layout is taken
    of_preset: bool = False  # whether the preset would run it; of two layouts the faster one
    turns_ms: list[list[float]] = field(default_factory=list)  # of every timed step, turn by turn
    peaks: list[Peak] = field(default_factory=list)  # of the timed steps of each turn; empty on a CPU
    losses: list[float] = field(default_factory=list)  # of every step of the newest turn, warm-up included
    busy: Busy | None = None  # of a step; None where nothing was profiled
    tuning_s: float | None = None  # seconds of first steps, compiling and measuring what is new; None where not ours
    overflows: int = 0  # steps that GradScaler has left out in the newest turn
    said: list[str] = field(default_factory=list)  # what was decided about device graphs
    error: str = ""  # why it could not go on

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.kind} {self.layout}"

    @property
    def layout(self) -> str:
        """What tables call its layout."""
        return {None: "(faster layout)", False: "NCHW", True: "channels_last"}[self.channels_last]

    @property
    def times_ms(self) -> list[float]:
        """Times of all timed steps."""
        return [time_ms for turn in self.turns_ms for time_ms in turn]

    @property
    def step_ms(self) -> float | None:
        """Median time of a step."""
        return median(times) if (times := self.times_ms) and not self.error else None

    @property
    def peak(self) -> Peak | None:
        """Most memory of any turn."""
        return None if self.error else highest(self.peaks)

    @property
    def is_ours(self) -> bool:
        """Whether anything of ours computes it."""
        return bool(self.patches)

    @property
    def served(self) -> str:
        """How many layers each engine computes, and what was decided about device graphs in the first turn.

        Empty where it has not run. Every BatchNorm that is called as an operator goes through the patch: where the way
        has run and none did, the compiler has made them part of its own kernels.
        """
        said = []
        for patch in self.patches:
            if patch.report.served:
                said.append(patch.report.summary())
            elif self.compiled and self.turns_ms and isinstance(patch, NormPatch):
                said.append("BatchNorm by Inductor")
        return "; ".join([*said, *self.said[:1]])

    @contextmanager
    def applied(self, device: str) -> Iterator[None]:
        """Compute the steps of the process this way while the context is open."""
        with ExitStack() as undo:
            for piece in self.pieces:
                undo.enter_context(piece(device))
            yield
