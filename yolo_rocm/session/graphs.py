"""`step.graph` in a training: which model is recorded, from when on, and when its graphs are let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..preset.step import graph_of
from ..ultralytics_hooks import models, network_calls
from ..ultralytics_hooks.log import say
from ..utils.switch import Switch
from .listeners import Listener

if TYPE_CHECKING:
    from ..graphs.network import NetworkGraphs
    from .session import Session


class Graphs(Listener):
    """The device graphs of one training.

    Attributes:
        said: What was decided, in words.
    """

    def __init__(self, session: Session) -> None:
        self._mode = graph_of(session.settings.preset)
        self._graphs: NetworkGraphs | None = None
        self._batch = 0
        self.said: list[str] = []

    def begin(self, trainer: Any) -> None:
        """Record the model from now on, where that is wanted and possible: its layers and layout are decided."""
        from ..graphs.network import NetworkGraphs
        from ..graphs.recorder import why_not

        if self._mode == Switch.OFF:
            return
        reason = why_not(trainer.device) or network_calls.why_not_graphed(trainer)
        if reason:
            if self._mode != Switch.AUTO:
                self._say(f"device graph off: {reason}")
            return
        self._batch = trainer.batch_size
        self._graphs = NetworkGraphs(models.plain_model(trainer.model), self._mode, self._say)

    @property
    def are_replayed(self) -> bool:
        """Whether something is recorded: a step in which modules are watched would be another than the others."""
        return self._graphs is not None and self._graphs.recorded > 0

    def epoch_starts(self, trainer: Any) -> None:
        """Let go of graphs of a batch that did not fit: Ultralytics begins the epoch again with a smaller one."""
        if self._graphs is not None and trainer.batch_size != self._batch:
            self._batch = trainer.batch_size
            self._graphs.forget()

    def close(self) -> None:
        """Record nothing more and let go of all memory; safe to call twice."""
        if self._graphs is not None:
            self._graphs.close()
            self._graphs = None

    def _say(self, line: str) -> None:
        self.said.append(line)
        say("graph.choice", line)
