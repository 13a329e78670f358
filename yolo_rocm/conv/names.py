"""Names that rooms above share with convolution, in a module that imports no torch."""

from typing import Final

from ..engines.names import Pass

# The operators of convolution, on disk and in quarantine: of a training, and of a network that only computes.
TRAINING, INFERENCE = "conv", "fused"
PASSES: Final = (Pass.FORWARD, Pass.GRAD_INPUT, Pass.GRAD_WEIGHT)
