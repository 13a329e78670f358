"""What every algorithm of every operator has to keep, as checks over `BaseAlgorithm`; operators bring cases as data.

An operator's suite makes one `Contract` of its own exact results and allowed errors, and calls the checks for its
algorithms and problems. All run a pass as a training does, by `Operator.run`, with the tensors of `Operator.operands`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from yolo_rocm.engines.operator import Operator, Tensors

ROOM = 1 << 40


class Allocations(TorchDispatchMode):
    """Records operators that return new memory, and its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {memory(each) for each in args if isinstance(each, torch.Tensor)}
        if isinstance(result, torch.Tensor) and memory(result) not in given:
            self.names.append(str(func))
            self.sizes.append(result.numel() * result.element_size())
        return result


def memory(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr()


@dataclass(frozen=True)
class Contract:
    """The checks for one operator.

    Attributes:
        operator: The operator.
        exact: Returns the right result of a pass in fp64, from problem, pass and operands.
        allowed: Returns the largest relative error of a pass of a problem.
    """

    operator: Operator[Any, Any]
    exact: Callable[[Any, str, Tensors], torch.Tensor]
    allowed: Callable[[Any, str], float]

    def passes(self, algorithm: Any, problem: Any, which: Sequence[str] | None) -> Sequence[str]:
        """Return the passes to check, of an algorithm that supports the problem."""
        reasons = algorithm.not_supported_reasons(problem)
        assert reasons == [], (algorithm.name, str(problem), reasons)
        return which or self.operator.passes

    def check_values(
        self, algorithm: Any, problem: Any, which: Sequence[str] | None = None, operands: Tensors | None = None
    ) -> None:
        """Each pass gives what fp64 gives, up to the allowed error, in the problem's data type."""
        given = operands or self.operator.operands(problem)
        for each in self.passes(algorithm, problem, which):
            result = self.operator.run(algorithm, problem, each, given, ROOM)
            exact = self.exact(problem, each, given)
            error = self.operator.distance(problem, each, result, exact)
            assert error <= self.allowed(problem, each), (algorithm.name, each, str(problem), error)

    def check_views(self, algorithm: Any, problem: Any, which: Sequence[str] | None = None) -> None:
        """Odd strides: operands between values that are not a number, at addresses that no vector begins at."""
        operands = self.operator.operands(problem)
        self.check_values(algorithm, problem, which, like(operands, map(with_gaps, operands)))

    def check_large_means(self, algorithm: Any, problem: Any, which: Sequence[str] | None = None) -> None:
        """Values far from zero compared with their spread cost no digits of a sum but those of its size."""
        operands = self.operator.operands(problem)
        self.check_values(algorithm, problem, which, like(operands, (each + 30 for each in operands)))

    def check_order(self, algorithm: Any, problem: Any, which: Sequence[str] | None = None) -> None:
        """Sums have a fixed order: the same tensors give the same bits."""
        operands = self.operator.operands(problem)
        for each in self.passes(algorithm, problem, which):
            first, second = (self.operator.run(algorithm, problem, each, operands, ROOM) for _ in range(2))
            assert torch.equal(first, second), (algorithm.name, each, str(problem))

    def check_workspace(
        self, algorithm: Any, problem: Any, which: Sequence[str] | None = None, reuses: int = 1
    ) -> None:
        """The workspace an algorithm claims is what it takes: counted, not believed.

        Args:
            algorithm: The algorithm.
            problem: The problem.
            which: The passes.
            reuses: How often memory may be freed and taken again: all allocations of a pass are counted together.
        """
        operands = self.operator.operands(problem)
        for each in self.passes(algorithm, problem, which):
            with Allocations() as seen:
                result = self.operator.run(algorithm, problem, each, operands, ROOM)
            own, claimed = result.numel() * result.element_size(), algorithm.workspace_bytes(problem)
            taken = sum(seen.sizes) - own
            assert taken <= reuses * claimed + (own if reuses > 1 else 0), (algorithm.name, each, str(problem), taken)


def like(operands: Tensors, values: Any) -> Tensors:
    """Return operands of the same kind, with other values."""
    kind: Any = type(operands)
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values as a view of every other one of a larger tensor, whose others are not a number."""
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1] + 1)
    wide = torch.full(shape, float("nan"), dtype=tensor.dtype, device=tensor.device)
    view = wide[..., 1::2]
    return view.copy_(tensor)
