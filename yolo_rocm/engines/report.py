"""What a seam did: every problem it met, its plan, and which layers of a model it belongs to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import torch

from .bounded import Bounded
from .names import Pass
from .operator import A, P
from .planner import Plan


@dataclass
class ProblemStats(Generic[P, A]):
    """A problem, its plan and how often each direction ran."""

    problem: P
    plan: Plan[A]
    forward_calls: int = 0
    backward_calls: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "problem": str(self.problem),
            "engine": self.plan.engine,
            "reason": self.plan[Pass.FORWARD].reason,
            "forward_calls": self.forward_calls,
            "backward_calls": self.backward_calls,
        }


class SeamReport(Generic[P, A]):
    """Filled by a seam while it is on; readable at any time.

    Attributes:
        noun: What its layers are called.
        kinds: The modules that are its layers.
        served: The problems computed so far, the latest thousands, each with its plan and calls.
    """

    noun: ClassVar[str]
    kinds: ClassVar[tuple[type[torch.nn.Module], ...]]

    def __init__(self) -> None:
        self.served: dict[P, ProblemStats[P, A]] = Bounded()
        self._kinds: dict[str, str] = {}
        self._layers: dict[str, list[ProblemStats[P, A]]] = {}
        self._names: dict[int, str] = {}
        self._naming = threading.local()

    @property
    def is_naming(self) -> bool:
        """Whether calls are being attributed to modules."""
        return bool(self._names)

    def entry(self, problem: P, plan: Plan[A]) -> ProblemStats[P, A]:
        """Return the entry of a problem, made on first sight."""
        return self.served.setdefault(problem, ProblemStats(problem, plan))

    def count_forward(self, served: ProblemStats[P, A]) -> str | None:
        """Note a forward call, and return its layer where one has announced itself."""
        served.forward_calls += 1
        name = getattr(self._naming, "layer", None)
        if name is not None:
            self._naming.layer = None
            if served not in self._layers[name]:
                self._layers[name].append(served)
        return name

    def count_call(self, served: ProblemStats[P, A], module: torch.nn.Module) -> None:
        """Note a forward call that was made for a module without calling it."""
        if self._names:
            self.announce(module)
            self.count_forward(served)
        else:
            served.forward_calls += 1

    def replan(self, plan: Callable[[P], Plan[A]]) -> None:
        """Take over new plans of the problems seen so far."""
        for served in list(self.served.values()):
            served.plan = plan(served.problem)

    def restart(self) -> None:
        """Forget everything seen so far."""
        for kept in (self.served, self._layers, self._kinds):
            kept.clear()

    @contextmanager
    def naming(self, model: torch.nn.Module) -> Iterator[None]:
        """While open, attribute each call to the module of `model` that made it.

        The hook is torch's global one: nothing is attached to the model, so nothing can end up in a checkpoint.
        """
        names: dict[int, str] = {}
        for layer, module in model.named_modules():
            if isinstance(module, self.kinds):
                names[id(module)] = layer
                self._kinds[layer] = type(module).__name__
                self._layers.setdefault(layer, [])
        self._names = names
        hook = torch.nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: self.announce(module))
        try:
            yield
        finally:
            hook.remove()
            self._names = {}
            self._naming.layer = None

    def announce(self, module: torch.nn.Module) -> None:
        """Say that the next call is a module's, where layers are being named."""
        name = self._names.get(id(module))
        if name is not None:
            self._naming.layer = name

    def engines(self) -> Counter[str]:
        """Count layers per engine, or problems where no model was named. What has not run is `not reached yet`."""
        if self._layers:
            return Counter(
                "+".join(dict.fromkeys(s.plan.engine for s in seen)) or "not reached yet"
                for seen in list(self._layers.values())
            )
        return Counter(served.plan.engine for served in list(self.served.values()))

    def summary(self) -> str:
        """Say in one line how many layers each engine computes."""
        if self._layers and not self.served:
            return f"{len(self._layers)} {self.noun} layers, none of them on a device that rocm.conv.devices names"
        counts = ", ".join(f"{n} {engine}" for engine, n in self.engines().most_common())
        if self._layers:
            return f"{len(self._layers)} {self.noun} layers: {counts}"
        return f"{len(self.served)} {self.noun} shapes: {counts or 'none yet'}"
