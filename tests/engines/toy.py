"""An operator that the engine room has never heard of: the product of two matrices, and the gradient of the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from yolo_rocm.engines.operator import BaseAlgorithm, Operator
from yolo_rocm.engines.planner import BasePlanner
from yolo_rocm.engines.trust.record import record_of


@dataclass(frozen=True)
class Product:
    """`rows` x 8 times 8 x 4."""

    rows: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def flops(self) -> int:
        """Return the work of a pass."""
        return 2 * self.rows * 8 * 4

    @property
    def key(self) -> str:
        """Return the name on disk."""
        return f"product 8x4 on {self.rows}x8 {self.dtype} {self.device}"


class Plain(BaseAlgorithm[Product]):
    """`torch.matmul`."""

    name = "plain"

    def __init__(self, name: str = "plain", change: Callable[[torch.Tensor], torch.Tensor] = lambda result: result):
        self.name, self._change = name, change
        self.ran: list[str] = []

    def not_supported_reasons(self, problem: Product) -> list[str]:
        """Support what is not quarantined."""
        why = record_of(problem.device).quarantine_reason("toy", self.kernel or "", problem.dtype)
        return [] if why is None else [why]

    def workspace_bytes(self, problem: Product) -> int:
        """Take nothing."""
        return 0

    def compute(self, which: str, a: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """Compute a pass."""
        self.ran.append(which)
        return self._change(a @ b if which == "forward" else grad @ b.t())


class Compiled(Plain):
    """One whose kernel has to be qualified."""

    engine = "triton"
    kernel = "toy"


class Products(Operator[Product, Plain]):
    """The operator."""

    name = "toy"
    passes = ("forward", "backward")

    def __init__(self, *algorithms: Plain) -> None:
        self.algorithms = algorithms
        self.smallest = 0

    def preferred(self, problem, which, engines):
        """Prefer the plain one."""
        return ("plain",)

    def reference(self, problem):
        """Return one of its own, so that its runs do not count."""
        return Plain()

    def operands(self, problem):
        """Draw them."""
        shapes = ((problem.rows, 8), (8, 4), (problem.rows, 4))
        return tuple(torch.randn(shape, dtype=problem.dtype) for shape in shapes)

    def call(self, algorithm, problem, which, operands, budget):
        """Return a pass."""
        return lambda: algorithm.compute(which, *operands)

    def cast(self, problem, dtype, device):
        """Change data type and device."""
        return replace(problem, dtype=dtype, device=device)

    def small(self, problem, kernel):
        """Return three rows."""
        return replace(problem, rows=3)


def planner_of(operator: Products, engine: str = "auto", **options) -> BasePlanner[Product, Plain]:
    """Return a planner of a toy operator."""

    class Planner(BasePlanner[Product, Plain]):
        pass

    Planner.operator = operator
    return Planner(engine, **options)
