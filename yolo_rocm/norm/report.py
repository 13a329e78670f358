"""What the seam did: every BatchNorm it met, its plan, and which layer of a model it belongs to."""

from __future__ import annotations

from typing import Any

import torch

from ..engines.names import Pass
from ..engines.report import ProblemStats, SeamReport
from .algorithms import NormAlgorithm
from .problem import NormProblem

__all__ = ["NormReport", "NormStats"]

NormStats = ProblemStats[NormProblem, NormAlgorithm]


class NormReport(SeamReport[NormProblem, NormAlgorithm]):
    """Filled by the seam and by fused blocks while a patch is on; readable at any time."""

    noun = "BatchNorm"
    kinds = (torch.nn.modules.batchnorm._BatchNorm,)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        layers: list[dict[str, Any]] = []
        for name, seen in list(self._layers.items()):
            rows = [_row(served) for served in seen] or [{"engine": None, "reason": "has not run yet"}]
            layers += [{"layer": name, "module": self._kinds[name], **row} for row in rows]
        problems = [served.as_dict() for served in list(self.served.values())]
        return {"engines": dict(self.engines()), "layers": layers, "problems": problems}


def _row(served: NormStats) -> dict[str, Any]:
    plan = served.plan
    algorithms: dict[str, str] = {which: choice.algorithm.name for which, choice in plan.items()}
    return {"problem": str(served.problem), "engine": plan.engine, "reason": plan[Pass.FORWARD].reason, **algorithms}
