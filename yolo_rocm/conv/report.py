"""What the seam did: every problem it met, the plan for it, and which layer of a model it belongs to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from .plan import Plan
from .problem import ConvProblem
from .tune import PASSES


@dataclass
class Served:
    """A problem, its plan and how often each direction ran."""

    problem: ConvProblem
    plan: Plan
    forward_calls: int = 0
    backward_calls: int = 0


@dataclass(frozen=True)
class LayerRow:
    """One convolution layer of a model, at one of the shapes it met."""

    name: str
    kind: str
    served: Served | None

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        row: dict[str, Any] = {"layer": self.name, "module": self.kind}
        if self.served is None:
            return {**row, "engine": None, "reason": "has not run yet"}
        plan = self.served.plan
        row.update(problem=str(self.served.problem), engine=plan.engine, reason=plan.forward.reason)
        row.update({which: getattr(plan, which).algorithm.name for which in PASSES})
        return row


class ConvReport:
    """Filled by the seam while it is on; readable at any time.

    Attributes:
        served: Every distinct problem, in order of first sight.
    """

    def __init__(self) -> None:
        self.served: dict[ConvProblem, Served] = {}
        self._kinds: dict[str, str] = {}
        self._layers: dict[str, list[Served]] = {}
        self._naming = threading.local()

    def count_forward(self, problem: ConvProblem, plan: Plan) -> None:
        """Note a forward call, and its layer where one has announced itself."""
        served = self._entry(problem, plan)
        served.forward_calls += 1
        name = getattr(self._naming, "layer", None)
        if name is not None:
            self._naming.layer = None
            if served not in self._layers[name]:
                self._layers[name].append(served)

    def count_backward(self, problem: ConvProblem, plan: Plan) -> None:
        """Note a backward call."""
        self._entry(problem, plan).backward_calls += 1

    def replan(self, plan: Callable[[ConvProblem], Plan]) -> None:
        """Take over new plans of the problems seen so far."""
        for served in self.served.values():
            served.plan = plan(served.problem)

    @contextmanager
    def naming(self, model: torch.nn.Module) -> Iterator[None]:
        """While open, attribute each convolution to the module of `model` that called it.

        The hook is torch's global one: nothing is attached to the model, so nothing can end up in a checkpoint.
        """
        names = {
            id(module): name
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.modules.conv._ConvNd)
        }
        for module_name, module in model.named_modules():
            if id(module) in names:
                self._kinds[module_name] = type(module).__name__
                self._layers.setdefault(module_name, [])

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
        rows: list[LayerRow] = []
        for name, seen in self._layers.items():
            shapes: list[Served | None] = [*seen] or [None]
            rows.extend(LayerRow(name, self._kinds[name], served) for served in shapes)
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
        """Say in one line how many convolutions each engine serves."""
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
                    "reason": s.plan.forward.reason,
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

    def _entry(self, problem: ConvProblem, plan: Plan) -> Served:
        served = self.served.get(problem)
        if served is None:
            served = self.served.setdefault(problem, Served(problem, plan))
        return served
