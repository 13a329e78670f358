"""Names that rooms above share with convolution, in a module that imports no torch."""

from typing import Final

PASSES: Final = ("forward", "grad_input", "grad_weight")
