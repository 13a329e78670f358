"""From a problem to the algorithm that serves each of its passes, with the reason for every choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import ConfigError, EngineError, nearest
from .algorithms import ALGORITHMS, Algorithm
from .problem import ConvProblem

ENGINES: Final = ("auto", "vendor", "aten", "gemm")
PASSES: Final = ("forward", "grad_input", "grad_weight")
DEFAULT_MEMORY_MB: Final = 512


@dataclass(frozen=True)
class Choice:
    """An algorithm and why it was chosen."""

    algorithm: Algorithm
    reason: str


@dataclass(frozen=True)
class Plan:
    """The choice for each pass of one problem."""

    forward: Choice
    grad_input: Choice
    grad_weight: Choice

    @property
    def engine(self) -> str:
        """Engine of the passes, joined by `+` where they differ."""
        return "+".join(dict.fromkeys(getattr(self, which).algorithm.engine for which in PASSES))


class Planner:
    """Chooses algorithms for one engine setting and remembers every choice.

    Args:
        engine: One of `ENGINES`. `auto` takes the vendor library where `vendor` is True, else `gemm`, else `aten`.
        vendor: Whether the vendor library is healthy, as far as the caller knows.
        memory_mb: Workspace a single pass may take beside its result.
    """

    def __init__(self, engine: str = "auto", vendor: bool = False, memory_mb: int | None = None) -> None:
        if engine not in ENGINES:
            raise ConfigError(f"unknown engine {engine!r}{nearest(engine, ENGINES)} Allowed: {', '.join(ENGINES)}.")
        if memory_mb is not None and memory_mb < 1:
            raise ConfigError(f"conv.memory_mb must be at least 1, got {memory_mb}.")
        self.engine = engine
        self.budget = (memory_mb or DEFAULT_MEMORY_MB) * 2**20
        engines = (["vendor"] if vendor else []) + ["gemm", "aten"] if engine == "auto" else [engine]
        self._candidates = [a for wanted in engines for a in ALGORITHMS if a.engine == wanted]
        self._plans: dict[ConvProblem, Plan] = {}

    def plan(self, problem: ConvProblem) -> Plan:
        """Return the plan for `problem`, made on first sight.

        Raises:
            EngineError: No algorithm of the requested engine serves the problem; the message gives every reason.
        """
        plan = self._plans.get(problem)
        if plan is None:
            choice = self._choose(problem)
            plan = self._plans[problem] = Plan(choice, choice, choice)
        return plan

    def _choose(self, problem: ConvProblem) -> Choice:
        refused: list[tuple[Algorithm, list[str]]] = []
        for algorithm in self._candidates:
            reasons = algorithm.not_supported_reasons(problem)
            if not reasons:
                return Choice(algorithm, self._why(algorithm, refused))
            refused.append((algorithm, reasons))
        lines = "".join(f"\n  {a.name}: {'; '.join(reasons)}" for a, reasons in refused)
        raise EngineError(
            f"engine '{self.engine}' cannot serve {problem}:{lines}\n"
            "Use engine 'auto', which goes on to the next engine that can, or 'aten', which serves all that torch does."
        )

    def _why(self, algorithm: Algorithm, refused: list[tuple[Algorithm, list[str]]]) -> str:
        asked = f"engine '{self.engine}'"
        if not refused:
            return f"first choice of {asked}"
        return f"{asked}, after " + ", ".join(f"{a.name} ({'; '.join(reasons)})" for a, reasons in refused)
