"""What the seam did: every problem it met, its plan, and which layer of a model it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ..engines.names import NATIVE, Pass
from ..engines.report import ProblemStats, SeamReport
from .algorithms import Algorithm
from .chunking import largest_workspace
from .names import PASSES
from .problem import ConvProblem
from .step_timer import LayerTimes, StepTimer

__all__ = ["ConvReport", "ConvStats", "LayerRow"]

ConvStats = ProblemStats[ConvProblem, Algorithm]


@dataclass(frozen=True)
class LayerRow:
    """One convolution layer of a model, at one of the shapes it met."""

    name: str
    kind: str
    served: ConvStats | None
    times_ms: dict[str, float] = field(default_factory=dict)
    budget: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        row: dict[str, Any] = {"layer": self.name, "module": self.kind}
        if self.served is None:
            return {**row, "engine": None, "reason": "has not run yet"}
        plan, problem = self.served.plan, self.served.problem
        algorithms = {which: choice.algorithm for which, choice in plan.items()}
        row.update(problem=str(problem), engine=plan.engine, reason=plan[Pass.FORWARD].reason)
        row.update({which: algorithm.name for which, algorithm in algorithms.items()})
        row.update(times_ms={which: round(ms, 4) for which, ms in self.times_ms.items()})
        if self.budget is not None:  # what passes may take in addition to their results; unknown of native kernels
            row["workspace_bytes"] = {
                which: None if a.engine in NATIVE else largest_workspace(a, problem, self.budget)
                for which, a in algorithms.items()
            }
        return row


class ConvReport(SeamReport[ConvProblem, Algorithm]):
    """Filled by the seam while it is on; readable at any time.

    Args:
        budget: Workspace in bytes that a pass may take, for the report's own figures.

    Attributes:
        served: The problems computed so far, each with its plan and calls.
        timer: The step that is being timed; None in nearly all of them.
        times: What timed steps have shown.
    """

    noun: ClassVar[str] = "convolution"
    kinds: ClassVar[tuple[type[torch.nn.Module], ...]] = (torch.nn.modules.conv._ConvNd,)

    def __init__(self, budget: int | None = None) -> None:
        super().__init__()
        self.timer: StepTimer | None = None
        self.times = LayerTimes()
        self._budget = budget

    @property
    def is_watching(self) -> bool:
        """Whether each convolution is to be told apart now: layers are being named, or timed."""
        return self.timer is not None or self.is_naming

    def restart(self) -> None:
        """Forget everything seen and timed so far."""
        super().restart()
        self.times = LayerTimes()

    def layers(self) -> list[LayerRow]:
        """Return every layer of the named model, once per shape it met; one the seam never saw has no plan."""
        self.times.collect()
        sharing: dict[ConvProblem, list[str]] = {}
        layers = [(name, list(seen)) for name, seen in list(self._layers.items())]  # while others compute
        for name, seen in layers:
            for served in seen:
                sharing.setdefault(served.problem, []).append(name)
        rows: list[LayerRow] = []
        for name, seen in layers:
            for served in seen:
                times = self.times.of(served.problem, name, sharing[served.problem])
                rows.append(LayerRow(name, self._kinds[name], served, times, self._budget))
            if not seen:
                rows.append(LayerRow(name, self._kinds[name], None))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "engines": dict(self.engines()),
            "layers": [row.as_dict() for row in self.layers()],
            "problems": [served.as_dict() for served in list(self.served.values())],
        }

    def table(self) -> str:
        """Return the whole table as text: layer (or shape), algorithm per pass, reason."""
        head = ("layer", "problem", *PASSES, "reason")
        rows: list[tuple[str, ...]] = [head]
        for row in self.layers() or [LayerRow("-", "", served) for served in list(self.served.values())]:
            data = row.as_dict()
            rows.append((row.name, *(str(data.get(key, "-")) for key in head[1:])))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
        )


class InferenceReport(ConvReport):
    """Of convolutions with their activations, in networks that only compute."""

    noun: ClassVar[str] = "inference convolution"
