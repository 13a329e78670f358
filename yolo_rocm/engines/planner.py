"""From a problem to the algorithm for each of its passes, with the reason for every choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic

import torch

from ..errors import ConfigError, EngineError
from ..utils.log_lines import log
from . import bounded
from .names import NATIVE, OURS, VENDOR, Pass, single_engines
from .operator import A, Operator, P
from .plan_store import Entry, PlanStore
from .selection import Timings, fastest, winners
from .trust.checks import check, gives_wrong_numbers
from .trust.record import record_of
from .tuning import Timing, tune

DEFAULT_MEMORY_MB: Final = 512
DEFAULT_TUNE_SECONDS: Final = 60.0
_MEASURED: Final = "fastest when measured"


@dataclass(frozen=True)
class PassChoice(Generic[A]):
    """An algorithm and why it was chosen."""

    algorithm: A
    reason: str


class Plan(dict[Pass, PassChoice[A]]):
    """The choice for each pass of one problem, by the name of the pass."""

    @property
    def engine(self) -> str:
        """Engine of the passes, joined by `+` where they differ."""
        return "+".join(dict.fromkeys(choice.algorithm.engine for choice in self.values()))


class BasePlanner(Generic[P, A]):
    """Chooses algorithms for one engine setting and remembers every choice; a subclass names the operator.

    A choice is, in this order: what was measured for the very problem, what was measured for the same layer at the
    nearest size, or what the heuristics prefer.

    Args:
        engine: One of `ENGINES`, or several joined by `+`, such as `gemm+triton`. `auto` goes over the vendor library
            where `vendor_library` is True, and over all others.
        vendor_library: Whether the vendor library is on, being healthy as far as the caller knows.
        memory_mb: Workspace a single pass may take in addition to its result.
        remember: Whether plans are read from and kept on disk.
        avoid_vendor: Data types in which the vendor library is known to be unhealthy; `auto` does without it there.
        for_training: Whether Python's time counts where a device would wait for it, and engines that bring next to
            nothing are left out; otherwise each pass gets what is fastest on the device.

    Attributes:
        engines: The engines to choose from.
    """

    operator: Operator[P, A]

    def __init__(
        self,
        engine: str = "auto",
        vendor_library: bool = False,
        memory_mb: int | None = None,
        remember: bool = True,
        avoid_vendor: Collection[torch.dtype] = (),
        for_training: bool = True,
    ) -> None:
        joined = single_engines(engine)
        if memory_mb is not None and memory_mb < 1:
            raise ConfigError(f"{self.operator.name}.memory_mb must be at least 1, got {memory_mb}.")
        self.engine = engine
        self.budget = (memory_mb or DEFAULT_MEMORY_MB) * 2**20
        auto = (*((VENDOR,) if vendor_library else ()), *OURS, "aten")
        self.engines = auto if engine == "auto" else tuple(joined)
        self._avoid_vendor = frozenset(avoid_vendor if engine == "auto" else ())
        self._remember, self._for_training = remember, for_training
        self._plans: dict[P, Plan[A]] = {}
        self._stores: dict[str, PlanStore] = {}
        self.generation = 0  # rises when plans change or are forgotten, so that callers drop what they have kept

    @property
    def tunable(self) -> bool:
        """Return whether there is anything to choose from."""
        return len(self.engines) > 1 or self.engines[0] not in NATIVE

    def candidates(self, problem: P) -> list[A]:
        """Return the algorithms of the allowed engines that support `problem` within the memory budget."""
        if self._remember:
            record_of(problem.device).recall_faults()
        supporting = [a for a in self._allowed(problem) if not self._against(a, problem)]
        # Not even chunking makes some fit; where nothing fits, what supports it has to do.
        fitting = [a for a in supporting if self.operator.smallest_workspace(a, problem) <= self.budget]
        return fitting or supporting

    def checked_candidates(self, problem: P) -> list[A]:
        """Return the candidates that work on the problem's device, after the qualification of their kernels."""
        record_of(problem.device).recall_faults()  # a benchmark too does without what has made the device fault
        checked: list[A] = []
        # Where the last one that fits the budget has just been left out, others are candidates: not checked yet.
        while (found := self.candidates(problem)) != checked:
            for algorithm in found:
                check(self.operator, algorithm, problem)
            checked = found
        return checked

    def _engines_for(self, problem: P) -> list[str]:
        return [e for e in self.engines if e != VENDOR or problem.dtype not in self._avoid_vendor]

    def _allowed(self, problem: P) -> list[A]:
        return [a for engine in self._engines_for(problem) for a in self.operator.algorithms if a.engine == engine]

    def plan(self, problem: P) -> Plan[A]:
        """Return the plan for `problem`, made on first sight.

        Raises:
            EngineError: No algorithm of the requested engine supports the problem; the message gives every reason.
        """
        plan = self._plans.get(problem)
        while plan is None:
            chosen = self._choose(problem)
            for which, choice in chosen.items():
                check(self.operator, choice.algorithm, problem, which)
            # Where one of them has just been found not to work here, the next best is taken.
            if not self._refused(problem, chosen):
                self._compare(problem, chosen)
            if not self._refused(problem, chosen):
                if len(self._plans) >= bounded.MOST:  # of sizes that may never come again
                    self._forget_plans()
                plan = self._plans[problem] = chosen
        return plan

    def _refused(self, problem: P, chosen: Plan[A]) -> bool:
        return any(self._against(choice.algorithm, problem) for choice in chosen.values())

    def _compare(self, problem: P, chosen: Plan[A]) -> None:
        """Leave out what gives wrong numbers at this size, of what has not been measured there; torch's own last."""
        if self.engines == (VENDOR,):
            return  # torch as it is: asked for, not chosen
        unmeasured = {which: choice.algorithm for which, choice in chosen.items() if choice.reason != _MEASURED}
        for which in gives_wrong_numbers(self.operator, problem, unmeasured, self.budget):
            algorithm = unmeasured[which]
            if algorithm.engine in NATIVE and all(a is algorithm for a in self.candidates(problem)):
                log(
                    "kernel.wrong_numbers",
                    "%s gives wrong numbers for %s, %s, and engine '%s' has no other: engine 'auto' has",
                    *(algorithm.name, problem, which, self.engine),
                )
            else:
                record_of(problem.device).gave_wrong_numbers(self.operator.name, algorithm.name, problem, which)

    def _choose(self, problem: P) -> Plan[A]:
        supporting = {a.name: a for a in self.candidates(problem)}
        if not supporting:
            raise self._refusal(problem)
        measured, reason = self.measured(problem) if self.tunable else {}, _MEASURED
        if not measured and self.tunable:
            near = self._store(problem.device).nearest(self._key(problem))
            if near is not None:
                measured, reason = near[0], f"fastest when measured on {near[1]}"
        return Plan(
            {
                which: PassChoice(supporting[measured[which]], reason)
                if measured.get(which) in supporting
                else self._by_heuristics(problem, which, supporting)
                for which in self.operator.passes
            }
        )

    def _by_heuristics(self, problem: P, which: Pass, supporting: dict[str, A]) -> PassChoice[A]:
        for algorithm in supporting.values():
            if algorithm.engine == VENDOR:
                return PassChoice(algorithm, f"engine '{self.engine}', vendor library on")
        for name in self.operator.preferred(problem, which, self.engines):
            if name in supporting:
                return PassChoice(supporting[name], f"engine '{self.engine}', by heuristics")
        first = next(iter(supporting.values()))
        refused = "; ".join(f"{name}: {', '.join(why)}" for name, why in self._refusing(problem).items())
        return PassChoice(first, f"engine '{self.engine}'" + (f", after {refused}" if refused else ""))

    def _refusing(self, problem: P) -> dict[str, list[str]]:
        return {a.name: why for a in self._allowed(problem) if (why := self._against(a, problem))}

    def _refusal(self, problem: P) -> EngineError:
        lines = "".join(f"\n  {name}: {'; '.join(why)}" for name, why in self._refusing(problem).items())
        native = [a for a in self.operator.algorithms if a.engine == "aten" and not self._against(a, problem)]
        return EngineError(
            f"engine '{self.engine}' does not support {problem}:{lines}\n"
            "Use engine 'auto', which goes on to the next engine that does"
            + (", or 'aten', which supports all of torch's." if native else ".")
        )

    def tune(
        self,
        problems: Iterable[P],
        progress: Callable[[int, int], None] | None = None,
        limit_s: float = DEFAULT_TUNE_SECONDS,
    ) -> dict[P, dict[Pass, list[Timing]]]:
        """Measure the candidates of every problem not measured yet, and use the winners from now on.

        Args:
            problems: Problems to measure.
            progress: Called with (done, all).
            limit_s: Seconds after which nothing new is begun; what is left is decided by the nearest size or by
                heuristics.

        Returns:
            All timings, fastest first.
        """
        waiting = self.unmeasured(problems)
        timings: dict[P, dict[Pass, list[Timing]]] = {}
        if progress is not None and waiting:
            progress(0, len(waiting))
        try:
            for problem, result in tune(self.operator, waiting, self.checked_candidates, self.budget, limit_s):
                timings[problem] = result
                if progress is not None:
                    progress(len(timings), len(waiting))
        finally:  # what has been measured when Ctrl-C comes need not be measured again
            if timings:
                self.use(self.winners(timings))
        return timings

    def winners(self, timings: Timings[P]) -> dict[P, Entry]:
        """Return the algorithm for each pass of each problem, from measured times."""
        engines = {a.name: a.engine for a in self.operator.algorithms}
        return winners(timings, engines.__getitem__) if self._for_training else fastest(timings)

    def unmeasured(self, problems: Iterable[P]) -> list[P]:
        """Return those of the problems, each once, for which there is something to measure that is not known yet."""
        return [p for p in dict.fromkeys(problems) if not self.measured(p) and self.candidates(p)]

    def use(self, choices: dict[P, Entry]) -> None:
        """Plan these problems with these algorithms from now on, and keep that on disk."""
        by_device: dict[str, dict[str, Entry]] = {}
        for problem, entry in choices.items():
            by_device.setdefault(problem.device, {})[self._key(problem)] = entry
        for device, entries in by_device.items():
            self._store(device).add(entries)
        self._forget_plans()

    def _forget_plans(self) -> None:
        self._plans.clear()
        self.generation += 1

    @property
    def keeps(self) -> bool:
        """Whether later runs have what was measured in this one."""
        return all(store.keeps for store in self._stores.values())

    def measured(self, problem: P) -> Entry:
        """Return what was measured for a problem, now or in an earlier run."""
        return self._store(problem.device).entries.get(self._key(problem), {})

    def _store(self, device: str) -> PlanStore:
        if device not in self._stores:
            self._stores[device] = PlanStore(device, kind=self.operator.name, on_disk=self._remember)
        return self._stores[device]

    def _key(self, problem: P) -> str:
        """Name a problem on disk, with what limits the choice."""
        return f"{problem.key} | {'+'.join(self._engines_for(problem))} {self.budget >> 20} MB"

    def _against(self, algorithm: A, problem: P) -> list[str]:
        """Say why an algorithm is not used for a problem: it does not support it, or it has made the device fault."""
        record = record_of(problem.device)
        return algorithm.not_supported_reasons(problem) or record.reasons(self.operator.name, algorithm.name, problem)
