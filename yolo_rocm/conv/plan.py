"""From a problem to the algorithm that serves each of its passes, with the reason for every choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

import torch

from ..engines import faults, qualification
from ..engines.chunking import smallest_workspace
from ..engines.plan_store import PlanStore
from ..engines.selection import fastest, winners
from ..engines.tuning import PASSES, Timing, tune
from ..errors import ConfigError, EngineError, nearest
from .algorithms import ALGORITHMS, BY_NAME, Algorithm
from .heuristics import preferred
from .problem import ConvProblem

_SINGLE: Final = ("vendor", "aten", "gemm", "triton")
ENGINES: Final = ("auto", *_SINGLE)
DEFAULT_MEMORY_MB: Final = 512
DEFAULT_TUNE_SECONDS: Final = 60.0


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

    A choice is, in this order: what was measured for the very problem, what was measured for the same layer at the
    nearest size, or what the rules prefer.

    Args:
        engine: One of `ENGINES`, or several joined by `+`, such as `gemm+triton`. `auto` goes over the vendor library
            where `vendor` is True, and over all others.
        vendor: Whether the vendor library is healthy, as far as the caller knows.
        memory_mb: Workspace a single pass may take beside its result.
        remember: Whether measured choices are read from and kept on disk.
        avoid_vendor: Data types in which the vendor library is known to be unhealthy; `auto` does without it there.
        for_training: Whether Python's time counts where a device would wait for it, and engines that bring next to
            nothing are left out; otherwise each pass gets what is fastest on the device.
    """

    def __init__(
        self,
        engine: str = "auto",
        vendor: bool = False,
        memory_mb: int | None = None,
        remember: bool = True,
        avoid_vendor: Collection[torch.dtype] = (),
        for_training: bool = True,
    ) -> None:
        joined = check_engine(engine)
        if memory_mb is not None and memory_mb < 1:
            raise ConfigError(f"conv.memory_mb must be at least 1, got {memory_mb}.")
        self.engine = engine
        self._winners_of = winners if for_training else fastest
        self.budget = (memory_mb or DEFAULT_MEMORY_MB) * 2**20
        self._engines = (["vendor"] if vendor else []) + ["gemm", "triton", "aten"] if engine == "auto" else joined
        self._avoid_vendor = frozenset(avoid_vendor if engine == "auto" else ())
        self._plans: dict[ConvProblem, Plan] = {}
        self._measured: dict[ConvProblem, dict[str, str]] = {}
        self._stores: dict[str, PlanStore] | None = {} if remember else None
        self.generation = 0  # rises when plans change, so that callers drop what they have kept

    @property
    def tunable(self) -> bool:
        """Tell whether there is anything to choose from."""
        return self._engines not in (["vendor"], ["aten"])

    def candidates(self, problem: ConvProblem) -> list[Algorithm]:
        """Return the algorithms of the allowed engines that serve `problem` within the memory budget."""
        if self._stores is not None:
            faults.recall(problem.device)
        serving = [a for a in self._allowed(problem) if not _against(a, problem)]
        # Not even splitting makes some fit; where nothing fits, what serves has to do.
        return [a for a in serving if smallest_workspace(a, problem) <= self.budget] or serving

    def checked_candidates(self, problem: ConvProblem) -> list[Algorithm]:
        """Return the candidates that work on the problem's device, which some find out by a small run of their own."""
        faults.recall(problem.device)  # a benchmark too does without what has made the device fault
        for algorithm in self.candidates(problem):
            qualification.check(algorithm, problem)
        return self.candidates(problem)

    def _engines_for(self, problem: ConvProblem) -> list[str]:
        return [e for e in self._engines if e != "vendor" or problem.dtype not in self._avoid_vendor]

    def _allowed(self, problem: ConvProblem) -> list[Algorithm]:
        return [a for wanted in self._engines_for(problem) for a in ALGORITHMS if a.engine == wanted]

    def plan(self, problem: ConvProblem) -> Plan:
        """Return the plan for `problem`, made on first sight.

        Raises:
            EngineError: No algorithm of the requested engine serves the problem; the message gives every reason.
        """
        plan = self._plans.get(problem)
        if plan is None:
            plan = self._plans[problem] = self._make(problem)
        return plan

    def _make(self, problem: ConvProblem) -> Plan:
        while True:
            plan = self._choose(problem)
            chosen = [(getattr(plan, which).algorithm, which) for which in PASSES]
            for algorithm, which in chosen:
                qualification.check(algorithm, problem, which)
            if not any(_against(algorithm, problem) for algorithm, _ in chosen):
                return plan
            # One of them has just been found not to work here: the next best is asked.

    def _choose(self, problem: ConvProblem) -> Plan:
        serving = {a.name: a for a in self.candidates(problem)}
        if not serving:
            raise self._refusal(problem)
        measured = self._lookup(problem) if self.tunable else {}
        nearby, size = (None, "") if measured or not self.tunable else self._nearest(problem)
        choices = {}
        for which in PASSES:
            if measured.get(which) in serving:
                choices[which] = Choice(serving[measured[which]], "fastest when measured")
            elif nearby is not None and nearby.get(which) in serving:
                choices[which] = Choice(serving[nearby[which]], f"fastest when measured {size}")
            else:
                choices[which] = self._by_rule(problem, which, serving)
        return Plan(**choices)

    def _by_rule(self, problem: ConvProblem, which: str, serving: dict[str, Algorithm]) -> Choice:
        if "vendor" in serving:
            return Choice(serving["vendor"], f"engine '{self.engine}', vendor library on")
        for name in preferred(problem, which, triton="triton" in self._engines and "gemm" not in self._engines):
            if name in serving:
                return Choice(serving[name], f"engine '{self.engine}', by rule")
        first = next(iter(serving.values()))
        refused = "; ".join(f"{a.name}: {', '.join(_against(a, problem))}" for a in self._refusing(problem))
        return Choice(first, f"engine '{self.engine}'" + (f", after {refused}" if refused else ""))

    def _refusing(self, problem: ConvProblem) -> list[Algorithm]:
        return [a for a in self._allowed(problem) if _against(a, problem)]

    def _refusal(self, problem: ConvProblem) -> EngineError:
        lines = "".join(f"\n  {a.name}: {'; '.join(_against(a, problem))}" for a in self._refusing(problem))
        return EngineError(
            f"engine '{self.engine}' cannot serve {problem}:{lines}\n"
            "Use engine 'auto', which goes on to the next engine that can, or 'aten', which serves all that torch does."
        )

    def tune(
        self,
        problems: Iterable[ConvProblem],
        progress: Callable[[int, int], None] | None = None,
        limit_s: float = DEFAULT_TUNE_SECONDS,
    ) -> dict[ConvProblem, dict[str, list[Timing]]]:
        """Measure the candidates of every problem not measured yet, and use the winners from now on.

        Args:
            problems: Problems to measure.
            progress: Called with (done, all).
            limit_s: Seconds after which nothing new is begun; what is left is decided by the nearest size or by rule.

        Returns:
            All timings, fastest first.
        """
        waiting = self.unmeasured(problems)
        timings: dict[ConvProblem, dict[str, list[Timing]]] = {}
        if progress is not None and waiting:
            progress(0, len(waiting))
        try:
            for problem, result in tune(waiting, self.checked_candidates, self.budget, limit_s):
                timings[problem] = result
                if progress is not None:
                    progress(len(timings), len(waiting))
        finally:  # what has been measured when Ctrl-C comes need not be measured again
            if timings:
                self._measured |= self._winners_of(timings)
                self._keep(timings)
                self._plans.clear()
                self.generation += 1
        return timings

    def unmeasured(self, problems: Iterable[ConvProblem]) -> list[ConvProblem]:
        """Return those of the problems, each once, for which there is something to measure that is not known yet."""
        return [p for p in dict.fromkeys(problems) if not self._lookup(p) and not p.empty and self.candidates(p)]

    def _keep(self, problems: Iterable[ConvProblem]) -> None:
        if self._stores is None:
            return
        by_device: dict[str, dict[str, dict[str, str]]] = {}
        for problem in problems:
            by_device.setdefault(problem.device, {})[self._key(problem)] = self._measured[problem]
        for device, entries in by_device.items():
            self._store(device).add(entries)

    def _store(self, device: str) -> PlanStore:
        assert self._stores is not None
        if device not in self._stores:
            self._stores[device] = PlanStore(device)
        return self._stores[device]

    def _key(self, problem: ConvProblem) -> str:
        """Name a problem on disk: without the device's number, with what limits the choice."""
        kind = problem.device.partition(":")[0]
        return f"{replace(problem, device=kind)} | {'+'.join(self._engines_for(problem))} {self.budget >> 20} MB"

    def _lookup(self, problem: ConvProblem) -> dict[str, str]:
        """Return what was measured for a problem, now or in an earlier run; an algorithm that is gone is not."""
        measured = self._measured.get(problem)
        if measured is None and self._stores is not None:
            stored = self._store(problem.device).entries.get(self._key(problem), {})
            measured = {which: name for which, name in stored.items() if name in BY_NAME}
            if measured:
                self._measured[problem] = measured
        return measured or {}

    def _nearest(self, problem: ConvProblem) -> tuple[dict[str, str] | None, str]:
        """Return what was measured for the same layer at the nearest size, so that multi-scale training never tunes."""
        layer = _layer(problem)
        same = [p for p in self._measured if _layer(p) == layer]
        if not same:
            return None, ""
        near = min(same, key=lambda p: abs(math.log(_size(p) / _size(problem))))
        return self._measured[near], f"on {'x'.join(map(str, near.input_shape))}"


def check_engine(engine: str) -> list[str]:
    """Return the single engines of an engine setting.

    Raises:
        ConfigError: It names one that does not exist.
    """
    if engine == "auto":
        return list(_SINGLE)
    names = engine.split("+")
    for name in names:
        if name not in _SINGLE:
            raise ConfigError(
                f"unknown engine {name!r}{nearest(name, ENGINES)} Allowed: {', '.join(ENGINES)}, or several of the "
                f"last {len(_SINGLE)} joined by '+'."
            )
    return list(dict.fromkeys(names))


def _against(algorithm: Algorithm, problem: ConvProblem) -> list[str]:
    """Say why an algorithm is not used for a problem: it cannot serve it, or it has made the device fault."""
    return algorithm.not_supported_reasons(problem) or faults.reasons(algorithm.name, problem)


def _layer(problem: ConvProblem) -> ConvProblem:
    """Return a problem with everything left out that differs between sizes of one layer."""
    return replace(problem, input_shape=(0, problem.in_channels))


def _size(problem: ConvProblem) -> float:
    return max(1.0, float(math.prod(problem.input_shape)))
