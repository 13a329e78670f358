"""The ways to compute a BatchNorm, alone or with an activation.

Each is an algorithm of the engine room: it says what it does not support, what workspace it needs, and computes
forward, backward and the activation once more from the input and its statistics. `base` holds the contract, `native`
torch's own kernels, `pytorch` plain PyTorch, `triton` and `hip` kernels of ours. The order breaks ties where nothing
has been measured.
"""

from __future__ import annotations

from .base import NormAlgorithm
from .hip.batch_norm import HipNorm
from .native import Aten, Vendor
from .pytorch import Torch
from .triton.algorithm import TRITON

ALGORITHMS: tuple[NormAlgorithm, ...] = (Vendor(), *TRITON, HipNorm(), Torch(), Aten())
BY_NAME: dict[str, NormAlgorithm] = {algorithm.name: algorithm for algorithm in ALGORITHMS}

__all__ = ["ALGORITHMS", "BY_NAME", "NormAlgorithm"]
