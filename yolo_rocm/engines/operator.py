"""How an operator describes itself to the engine room: its problems and algorithms, and how to run and check them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch

from .measure import relative_error
from .names import Pass
from .products import cut_short

Tensors = tuple[torch.Tensor, ...]


class Problem(Protocol):
    """One call as plain data: hashable, everything that decides which algorithm supports it, and nothing else."""

    @property
    def device(self) -> str:
        """Device of the tensors, for example `cuda:0`."""

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the tensors."""

    @property
    def flops(self) -> int:
        """Work of one pass: problems with more of it are measured first."""

    @property
    def key(self) -> str:
        """Name on disk, without the device's number; the size that calls of a layer differ in is ` on 2x8x16x16 `."""


P = TypeVar("P", bound=Problem)


class BaseAlgorithm(ABC, Generic[P]):
    """One way to compute an operator, as the engine room sees it; each operator adds its passes.

    A subclass is stateless: one instance is used for every layer, thread and device.
    """

    name: ClassVar[str]
    engine: ClassVar[str] = "gemm"
    exact: ClassVar[bool] = True  # False where speed is paid with digits: the tuner measures the error too
    kernel: ClassVar[str | None] = None  # what `engines.trust` has to see working once on each device

    @abstractmethod
    def not_supported_reasons(self, problem: P) -> list[str]:
        """Say why this algorithm does not support `problem`; an empty list means it does."""

    @abstractmethod
    def workspace_bytes(self, problem: P) -> int:
        """Largest workspace of the passes, in addition to their results."""

    def worth_measuring(self, problem: P, which: Pass) -> bool:
        """Return whether a pass is worth a measurement where this algorithm supports it; False saves tuning time."""
        return True

    def prepare(self, problem: P, which: Pass) -> None:
        """Do beforehand what the first run of a pass would have to wait for, such as compiling; from any thread."""
        return

    def tested_by(self) -> BaseAlgorithm[P]:
        """Return the algorithm whose kernel this one uses: its qualification covers both."""
        return self


A = TypeVar("A", bound=BaseAlgorithm[Any])


class Operator(ABC, Generic[P, A]):
    """An operator: convolution, for example.

    Attributes:
        name: Its name, also that of its plan files.
        passes: Names of its passes, in the order they run in.
        algorithms: All there are; the order breaks ties where nothing has been measured. Their names, and those of
            their kernels, are unique within the operator: faults and quarantine know them by both names.
    """

    name: str
    passes: tuple[Pass, ...]
    algorithms: tuple[A, ...]

    @abstractmethod
    def preferred(self, problem: P, which: Pass, engines: Sequence[str]) -> Sequence[str]:
        """Return names of algorithms for a pass before anything was measured, best guess first: the heuristics."""

    @abstractmethod
    def reference(self, problem: P) -> A:
        """Return the plain algorithm that the results of others are compared with."""

    @abstractmethod
    def operands(self, problem: P) -> Tensors:
        """Return random tensors of a problem on its device; zeros would be faster than real data on some devices."""

    @abstractmethod
    def call(self, algorithm: A, problem: P, which: Pass, operands: Tensors, budget: int) -> Callable[[], torch.Tensor]:
        """Return a pass of an algorithm as a training runs it, within `budget` bytes of workspace."""

    @abstractmethod
    def cast(self, problem: P, dtype: torch.dtype, device: str) -> P:
        """Return the same problem in another data type, on another device."""

    @abstractmethod
    def small(self, problem: P, kernel: str) -> P:
        """Return a small problem of the same data type, device and layout, to qualify a kernel on."""

    def one_sample(self, problem: P) -> P:
        """Return the part of a problem that shows how exact an algorithm is on it."""
        return problem

    def smallest_workspace(self, algorithm: A, problem: P) -> int:
        """Return the workspace below which chunking cannot bring an algorithm."""
        return algorithm.workspace_bytes(problem)

    def run(self, algorithm: A, problem: P, which: Pass, operands: Tensors, budget: int = 1 << 62) -> torch.Tensor:
        """Run a pass of an algorithm once."""
        return self.call(algorithm, problem, which, operands, budget)()

    def expected(self, problem: P, which: Pass, operands: Tensors, budget: int) -> torch.Tensor:
        """Return what a pass has to give: the reference's result, of products that are right on every target."""
        with cut_short():
            return self.run(self.reference(problem), problem, which, operands, budget)

    def distance(self, problem: P, which: Pass, result: torch.Tensor, exact: torch.Tensor) -> float:
        """Return how far a result of `run` is from another one, relative to its size; NaN where either holds one."""
        return relative_error(result, exact)

    def in_fp64(self, problem: P, which: Pass, operands: Tensors, device: str) -> torch.Tensor:
        """Return the result of a pass in fp64 by the reference, computed on a device."""
        wide = self.cast(problem, torch.float64, device)
        doubles = tuple(operand.to(device, torch.float64) for operand in operands)
        return self.run(self.reference(wide), wide, which, doubles)
