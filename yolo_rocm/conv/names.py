"""Names that rooms above share with convolution, in a module that imports no torch."""

from typing import Final

from ..engines.names import Pass

PASSES: Final = (Pass.FORWARD, Pass.GRAD_INPUT, Pass.GRAD_WEIGHT)
