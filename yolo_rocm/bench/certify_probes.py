"""The probes of kernels, as both sides know them: the process that asks imports no torch."""

from __future__ import annotations

from typing import Final

from ..diagnosis.probes import DeviceProbe
from ..engines.names import NATIVE

KIND: Final = "kernel"
NORM_KIND: Final = "norm"


class KernelProbe(DeviceProbe):
    """One algorithm in one data type and layout; its answer is the largest share of the allowed error."""

    @property
    def compiles(self) -> bool:
        """Whether kernels are compiled before there is an answer."""
        return self.way not in (*NATIVE, "gemm")

    @property
    def limit(self) -> float:
        """All of the allowed error."""
        return 1.0
