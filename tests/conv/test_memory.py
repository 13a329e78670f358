"""Memory: no copies where none are needed, no loop over groups, and never more workspace than allowed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from tools.exactness import native_passes
from yolo_rocm.conv import chunking
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.conv.base import Bound
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.conv.step_timer import StepTimer

from ..engines.contract import Allocations
from .cases import CASES, conv

GEMM = [a for a in ALGORITHMS if a.engine == "gemm" and a.name != "depthwise_kernel"]


def problem_of(channels, out, kernel, groups=1, size=12, batch=2):
    return conv((batch, channels, size, size), out, (kernel, kernel), (1, 1), (kernel // 2, kernel // 2), groups=groups)


@pytest.mark.parametrize("layout", [False, True], ids=["nchw", "nhwc"])
def test_a_1x1_convolution_allocates_its_output_and_nothing_else(layout):
    problem = replace(problem_of(16, 24, 1), channels_last=layout)
    operands = Operands.of(problem)
    with Allocations() as seen:
        y = BY_NAME["pointwise"].forward(problem, operands.x, operands.weight, None)
    assert sum(seen.sizes) == y.numel() * 4
    with Allocations() as seen:
        gx = BY_NAME["pointwise"].grad_input(problem, operands.grad, operands.weight)
    assert sum(seen.sizes) == gx.numel() * 4


class Watched:
    """An algorithm that notes what workspace each call takes, and runs out of memory as often as it is told to."""

    def __init__(self, algorithm, failures: int = 0) -> None:
        self._algorithm, self._failures = algorithm, failures
        self.taken: list[int] = []

    def bound(self, problem):
        """Return the passes of this one."""
        return Bound(partial(self.forward, problem), partial(self.backward, problem))

    def __getattr__(self, name):
        value = getattr(self._algorithm, name)
        if name not in ("forward", "grad_input", "grad_weight", "backward"):
            return value

        def call(problem, *args):
            self.taken.append(self._algorithm.workspace_bytes(problem))
            if self._failures:
                self._failures -= 1
                raise torch.cuda.OutOfMemoryError("HIP out of memory. Tried to allocate")
            return value(problem, *args)

        return call


def test_out_of_memory_gets_one_smaller_try():
    problem, windows = problem_of(8, 8, 3, size=16, batch=8), BY_NAME["windows"]
    operands, budget = Operands.of(problem), windows.workspace_bytes(problem)
    native = native_passes(problem, operands)
    for which in PASSES:
        starving = Watched(windows, failures=1)
        ours = CONVOLUTION.run(starving, problem, which, operands, budget)
        torch.testing.assert_close(ours, native[which], rtol=1e-4, atol=1e-4)
        assert max(starving.taken[1:]) <= budget // 8
    with pytest.raises(torch.cuda.OutOfMemoryError):
        CONVOLUTION.run(Watched(windows, failures=99), problem, "forward", operands, 1 << 30)


@pytest.mark.parametrize("algorithm", GEMM, ids=lambda a: a.name)
def test_work_is_split_to_fit_and_stays_right(algorithm):
    """Cut along the batch, then along rows, transposed or not, down to one row of one sample."""
    able = [case for case in CASES.values() if not algorithm.not_supported_reasons(case)]
    assert able
    for problem in (replace(case, dtype=torch.float64, channels_last=turn % 2 > 0) for turn, case in enumerate(able)):
        operands = Operands.of(problem)
        native = native_passes(problem, operands)
        whole = algorithm.workspace_bytes(problem)
        for budget in (1, whole // 3):
            watched = Watched(algorithm)
            for which in PASSES:
                torch.testing.assert_close(CONVOLUTION.run(watched, problem, which, operands, budget), native[which])
            assert max(watched.taken) <= max(budget, chunking.smallest_workspace(algorithm, problem))


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_bands_of_rows_copy_no_whole_image(which, transposed):
    """Not for its padding either: but for the result, all that is allocated is as small as a band."""
    problem = replace(problem_of(16, 16, 3, size=128, batch=1), transposed=transposed)
    image = 16 * 128 * 128 * 4
    operands = Operands.of(problem)
    with Allocations() as seen:
        CONVOLUTION.run(BY_NAME["transposed" if transposed else "windows"], problem, which, operands, image // 2)
    assert sum(size > image // 2 for size in seen.sizes) == (which != "grad_weight")


def test_an_algorithm_that_cannot_be_made_small_enough_is_no_candidate():
    problem = problem_of(64, 64, 3, size=40, batch=8)  # shift_rows holds a partial weight per output column: 5.6 MB
    names = [a.name for a in Planner("gemm", memory_mb=2, remember=False).candidates(problem)]
    assert "shift_rows" not in names
    assert "windows" in names
    assert "shift_rows" in [a.name for a in Planner("gemm", remember=False).candidates(problem)]


@pytest.mark.parametrize("names", [("windows", "windows"), ("windows", "columns")], ids=["one", "two"])
@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
def test_the_workspace_of_the_weights_gradient_is_free_before_the_inputs_gradient_is_there(monkeypatch, names, timed):
    problem, order = problem_of(8, 8, 3), []
    for name in set(names):
        for which in PASSES[1:]:
            inner = getattr(BY_NAME[name], which)
            noted = partial(lambda inner, which, *a: (order.append(which), inner(*a))[1], inner, which)
            monkeypatch.setattr(BY_NAME[name], which, noted)
    planner = Planner("gemm", remember=False)
    planner.use({problem: dict(zip(PASSES, ("windows", *names), strict=True))})
    patch = Patch(["cpu"], planner)
    patch.report.timer = StepTimer(1, torch.device("cpu")) if timed else None
    x, weight = (torch.randn(shape, requires_grad=True) for shape in (problem.input_shape, problem.weight_shape))
    with installed(patch):
        torch.nn.functional.conv2d(x, weight, None, 1, 1).sum().backward()
    assert order == ["grad_weight", "grad_input"]


def test_the_seam_splits_what_does_not_fit(monkeypatch):
    problem, seen = problem_of(8, 8, 3, size=32, batch=16), []
    inner = BY_NAME["windows"].forward
    monkeypatch.setattr(BY_NAME["windows"], "forward", lambda p, *a: (seen.append(p.batch), inner(p, *a))[1])
    operands = Operands.of(problem)
    x, weight = operands.x, operands.weight
    exact = torch.nn.functional.conv2d(x.double(), weight.double(), None, 1, 1)
    for memory_mb, batches in ((64, [16]), (1, [2] * 8)):
        planner = Planner("gemm", memory_mb=memory_mb, remember=False)
        planner.use({problem: dict.fromkeys(PASSES, "windows")})
        seen.clear()
        with installed(Patch(["cpu"], planner)):
            y = torch.nn.functional.conv2d(x, weight, None, 1, 1)
        assert seen == batches
        torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
