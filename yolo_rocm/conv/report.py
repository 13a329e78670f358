"""What the seam did: every problem it met, its plan, and which layer of a model it belongs to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engines.names import NATIVE
from .chunking import largest_workspace
from .names import PASSES
from .plan import ConvPlan
from .problem import ConvProblem
from .step_timer import LayerTimes, StepTimer


@dataclass
class Served:
    """A problem, its plan and how often each direction ran."""

    problem: ConvProblem
    plan: ConvPlan
    forward_calls: int = 0
    backward_calls: int = 0


@dataclass(frozen=True)
class LayerRow:
    """One convolution layer of a model, at one of the shapes it met."""

    name: str
    kind: str
    served: Served | None
    times_ms: dict[str, float] = field(default_factory=dict)
    budget: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        row: dict[str, Any] = {"layer": self.name, "module": self.kind}
        if self.served is None:
            return {**row, "engine": None, "reason": "has not run yet"}
        plan, problem = self.served.plan, self.served.problem
        algorithms = {which: plan[which].algorithm for which in PASSES}
        row.update(problem=str(problem), engine=plan.engine, reason=plan["forward"].reason)
        row.update({which: algorithm.name for which, algorithm in algorithms.items()})
        row.update(times_ms={which: round(ms, 4) for which, ms in self.times_ms.items()})
        if self.budget is not None:  # what passes may take in addition to their results; unknown of native kernels
            row["workspace_bytes"] = {
                which: None if a.engine in NATIVE else largest_workspace(a, problem, self.budget)
                for which, a in algorithms.items()
            }
        return row


class ConvReport:
    """Filled by the seam while it is on; readable at any time.

    Args:
        budget: Workspace in bytes that a pass may take, for the report's own figures.

    Attributes:
        served: The problems computed so far, each with its plan and calls.
        timer: The step that is being timed; None in nearly all of them.
        times: What timed steps have shown.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.served: dict[ConvProblem, Served] = {}
        self.timer: StepTimer | None = None
        self.times = LayerTimes()
        self._budget = budget
        self._kinds: dict[str, str] = {}
        self._layers: dict[str, list[Served]] = {}
        self._naming = threading.local()

    def count_forward(self, served: Served) -> str | None:
        """Note a forward call, and return its layer where one has announced itself."""
        served.forward_calls += 1
        name = getattr(self._naming, "layer", None)
        if name is not None:
            self._naming.layer = None
            if served not in self._layers[name]:
                self._layers[name].append(served)
        return name

    def replan(self, plan: Callable[[ConvProblem], ConvPlan]) -> None:
        """Take over new plans of the problems seen so far."""
        for served in self.served.values():
            served.plan = plan(served.problem)

    @contextmanager
    def naming(self, model: torch.nn.Module) -> Iterator[None]:
        """While open, attribute each convolution to the module of `model` that called it.

        The hook is torch's global one: nothing is attached to the model, so nothing can end up in a checkpoint.
        """
        names: dict[int, str] = {}
        for layer, module in model.named_modules():
            if isinstance(module, torch.nn.modules.conv._ConvNd):
                names[id(module)] = layer
                self._kinds[layer] = type(module).__name__
                self._layers.setdefault(layer, [])

        def announce(module: torch.nn.Module, inputs: Any) -> None:
            name = names.get(id(module))
            if name is not None:
                self._naming.layer = name

        hook = torch.nn.modules.module.register_module_forward_pre_hook(announce)
        try:
            yield
        finally:
            hook.remove()
            self._naming.layer = None

    def layers(self) -> list[LayerRow]:
        """Return every layer of the named model, once per shape it met; one the seam never saw has no plan."""
        self.times.collect()
        sharing: dict[ConvProblem, list[str]] = {}
        for name, seen in self._layers.items():
            for served in seen:
                sharing.setdefault(served.problem, []).append(name)
        rows: list[LayerRow] = []
        for name, seen in self._layers.items():
            for served in seen:
                times = self.times.of(served.problem, name, sharing[served.problem])
                rows.append(LayerRow(name, self._kinds[name], served, times, self._budget))
            if not seen:
                rows.append(LayerRow(name, self._kinds[name], None))
        return rows

    def engines(self) -> Counter[str]:
        """Count layers per engine, or problems where no model was named. What has not run is `not reached yet`."""
        if self._layers:
            return Counter(
                "+".join(dict.fromkeys(s.plan.engine for s in seen)) or "not reached yet"
                for seen in self._layers.values()
            )
        return Counter(served.plan.engine for served in self.served.values())

    def summary(self) -> str:
        """Say in one line how many convolutions each engine computes."""
        if self._layers and not self.served:
            return f"{len(self._layers)} convolution layers, none of them on a device that rocm.conv.devices names"
        counts = ", ".join(f"{n} {engine}" for engine, n in self.engines().most_common())
        if self._layers:
            return f"{len(self._layers)} convolution layers: {counts}"
        return f"{len(self.served)} convolution shapes: {counts or 'none yet'}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "engines": dict(self.engines()),
            "layers": [row.as_dict() for row in self.layers()],
            "problems": [
                {
                    "problem": str(s.problem),
                    "engine": s.plan.engine,
                    "reason": s.plan["forward"].reason,
                    "forward_calls": s.forward_calls,
                    "backward_calls": s.backward_calls,
                }
                for s in self.served.values()
            ],
        }

    def table(self) -> str:
        """Return the whole table as text: layer (or shape), algorithm per pass, reason."""
        head = ("layer", "problem", *PASSES, "reason")
        rows: list[tuple[str, ...]] = [head]
        for row in self.layers() or [LayerRow("-", "", served) for served in self.served.values()]:
            data = row.as_dict()
            rows.append((row.name, *(str(data.get(key, "-")) for key in head[1:])))
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
        )

    def entry(self, problem: ConvProblem, plan: ConvPlan) -> Served:
        """Return the entry of a problem, made on first sight."""
        return self.served.setdefault(problem, Served(problem, plan))
