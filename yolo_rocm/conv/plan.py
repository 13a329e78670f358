"""The planner of convolutions: the engine room's, with convolution as its operator."""

from __future__ import annotations

from ..engines.planner import DEFAULT_TUNE_SECONDS, BasePlanner, Plan
from .algorithms import Algorithm
from .operator import CONVOLUTION
from .problem import ConvProblem

__all__ = ["DEFAULT_TUNE_SECONDS", "ConvPlan", "Planner"]

ConvPlan = Plan[Algorithm]


class Planner(BasePlanner[ConvProblem, Algorithm]):
    """Chooses algorithms for convolutions."""

    operator = CONVOLUTION
