"""The contract of every algorithm of convolution: gemm as it is, Triton's in its interpreter, hip's as host code."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, Algorithm
from yolo_rocm.conv.exactness import allowed_error, in_doubles, native_passes
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.conv.triton.tiles import SplitK
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton.available import missing_reason

from ..engines.contract import Contract
from ..interpreted import interpreter
from .cases import BY_KERNEL, CASES, conv
from .hip import on_host
from .problems import random_problem


def exact(problem: ConvProblem, which: str, operands: Any) -> torch.Tensor:
    return native_passes(problem, in_doubles(operands))[which]


CONTRACT = Contract(CONVOLUTION, exact, allowed_error)
# Winograd's transforms cost digits: the tuner measures how many. What is wrong errs by far more than this.
LOOSE = replace(CONTRACT, allowed=lambda problem, which: 16 * allowed_error(problem, which))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
GEMM = [a for a in ALGORITHMS if a.engine == "gemm" and a.name != "depthwise_kernel"]  # that one needs a GPU
TRITON = [a for a in ALGORITHMS if a.engine == "triton"]
HIP = [a for a in ALGORITHMS if a.engine == "hip"]


def own_passes(algorithm: Algorithm) -> Sequence[str]:
    """Return the passes that an algorithm does not take over from the plain tile of its size."""
    name = algorithm.name
    if name in ("triton_flat", "hip_few_channels"):
        return ("forward",)
    if name == "hip_winograd":
        return PASSES[:2]
    return ("grad_weight",) if "rows" in name or name.endswith("_turned") else PASSES


def supported(algorithm: Algorithm, problem: ConvProblem) -> bool:
    return not algorithm.not_supported_reasons(problem)


def each_kernel(algorithms: Sequence[Algorithm]) -> list[Any]:
    """Return a kernel's algorithms and a case: tiles, layouts and data types take turns, each at its own pace."""
    kernels: dict[str, list[Algorithm]] = {}
    found = []
    for algorithm in algorithms:
        kind = algorithm.name if algorithm.tested_by() is not algorithm else algorithm.kernel
        kernels.setdefault({"triton_transposed": "transposed"}.get(str(kind), str(kind)), []).append(algorithm)
    for kernel, tiles in kernels.items():
        for number, (name, case) in enumerate(CASES.items()):
            default = name in BY_KERNEL[kernel]
            turn = BY_KERNEL[kernel].index(name) if default else number
            marks = [] if default else [pytest.mark.deep]
            found.append(pytest.param(tiles, case, turn, id=f"{kernel}-{name}", marks=marks))
    return found


def taking_turns(tiles: Sequence[Algorithm], case: ConvProblem, turn: int) -> tuple[Algorithm, ConvProblem] | None:
    """Return the tile, layout and data type of a turn; None where the case is none of the kernel's."""
    for layout, dtype in (((turn % 2 == 1), DTYPES[turn % 3]), (False, torch.float32)):
        problem = replace(case, channels_last=layout, dtype=dtype)
        able = [tile for tile in tiles if supported(tile, problem)]
        if able:
            return able[turn % len(able)], problem
    return None


@pytest.mark.parametrize("algorithm", GEMM, ids=lambda a: a.name)
def test_gemm(poisoned: None, algorithm: Algorithm) -> None:
    """Every case that an algorithm supports, in both layouts and all data types."""
    tried, contract = 0, CONTRACT if algorithm.exact else LOOSE
    for case in CASES.values():
        for dtype in (torch.float64, *DTYPES):
            for last in (False, True):
                problem = replace(case, dtype=dtype, channels_last=last)
                if supported(algorithm, problem):
                    contract.check_values(algorithm, problem)
                    tried += 1
        for check in (contract.check_views, contract.check_large_means, contract.check_order):
            wide = replace(case, dtype=torch.float64)
            if supported(algorithm, wide):
                check(algorithm, wide)
    assert tried >= 2


@pytest.mark.parametrize("algorithm", GEMM, ids=lambda a: a.name)
def test_workspace_of_gemm_is_what_was_claimed(algorithm: Algorithm) -> None:
    layers = [conv((4, 32, 24, 24), 32, (3, 3), (1, 1), (1, 1), groups=groups) for groups in (1, 4, 32)]
    layers += [conv((4, 32, 24, 24), 48, (1, 1)), conv((4, 64, 24, 24), 64, (3, 3), (1, 1), (1, 1))]
    layers += [conv((4, 32, 12, 12), 16, (2, 2), (2, 2), transposed=True)]
    able = [layer for layer in layers if supported(algorithm, layer)]
    assert able
    for layer in able:
        CONTRACT.check_workspace(algorithm, layer, reuses=3)


def test_anything_in_fp64(poisoned: None) -> None:
    """Problems drawn at random: every algorithm of gemm that supports one."""
    rng = random.Random(0)
    for _ in range(120):
        problem = random_problem(rng)
        operands = Operands.of(problem, seed=rng.randrange(1000))
        native = native_passes(problem, operands)
        for algorithm in GEMM:
            if supported(algorithm, problem):
                for which in PASSES:
                    torch.testing.assert_close(CONVOLUTION.run(algorithm, problem, which, operands), native[which])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_large_values_do_not_overflow_where_native_does_not(dtype: torch.dtype) -> None:
    """Activations near the end of half precision: transforms and partial sums may not leave its range."""
    for problem in (random_problem(random.Random(seed), dtype) for seed in range(20)):
        operands = Operands.of(problem)
        loud = Operands(operands.x * 100, operands.weight, operands.grad * 10)
        right = native_passes(problem, in_doubles(loud))
        for algorithm in (each for each in GEMM if supported(each, problem)):
            for which in PASSES:
                if right[which].abs().max() < torch.finfo(dtype).max / 2:
                    result = CONVOLUTION.run(algorithm, problem, which, loud)
                    assert result.isfinite().all(), (algorithm.name, which, str(problem))


@pytest.fixture(scope="module")
def interpreting() -> Iterator[None]:
    with interpreter():
        yield


@pytest.fixture
def many_splits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pixels of a gradient of a weight are split over many programs, as on a GPU of many processors."""
    for module in (triton_gemm, triton_depthwise):
        monkeypatch.setattr(module, "processors", lambda device: 8)
    monkeypatch.setattr(calls, "GEMM_SPLIT", SplitK(programs=8, steps=1))
    monkeypatch.setattr(calls, "DEPTHWISE_SPLIT", {"nchw": SplitK(programs=16, steps=1)})
    with STATE.replaced():
        yield


triton = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
hip = [
    pytest.mark.once,
    pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("host"),
]


class TestTriton:
    """Kernels of Triton, in its interpreter."""

    pytestmark = triton

    @pytest.mark.parametrize(("tiles", "case", "turn"), each_kernel(TRITON))
    def test_values(self, poisoned: None, tiles: Sequence[Algorithm], case: ConvProblem, turn: int) -> None:
        chosen = taking_turns(tiles, case, turn)
        if chosen is not None:
            CONTRACT.check_values(*chosen, own_passes(chosen[0]))

    def test_every_tile(self, poisoned: None) -> None:
        """Each algorithm on one small layer; together they are all there are."""
        layers = [conv((1, 17, 3, 4), 5, (2, 3), (1, 2), (1, 1)), conv((2, 3, 5, 6), 18, (3, 3), (2, 1), (1, 1))]
        layers += [conv((2, 5, 5, 6), 5, (3, 3), (2, 1), (1, 1), groups=5), CASES["upsampling"]]
        for algorithm in TRITON:
            problem = next(layer for layer in layers if supported(algorithm, layer))
            CONTRACT.check_values(algorithm, problem, own_passes(algorithm)[-1:])

    @pytest.mark.parametrize("name", ["triton_m", "triton_rows_s", "triton_depthwise"])
    def test_sums_have_an_order_and_a_workspace(self, poisoned: None, many_splits: None, name: str) -> None:
        groups = 4 if name == "triton_depthwise" else 1
        problem, algorithm = conv((2, 4, 9, 11), 4, (3, 3), (1, 1), (1, 1), groups=groups), BY_NAME[name]
        splits = algorithm.workspace_bytes(problem) // (math.prod(problem.weight_shape) * 4)
        assert splits >= (2 if groups > 1 else 4)
        CONTRACT.check_order(algorithm, problem, ("grad_weight",))
        CONTRACT.check_workspace(algorithm, problem, own_passes(algorithm))
        CONTRACT.check_large_means(algorithm, problem, ("grad_weight",))

    @pytest.mark.parametrize("name", ["triton_s", "triton_flat", "triton_m_turned", "triton_depthwise"])
    def test_views(self, name: str) -> None:
        groups = 6 if name == "triton_depthwise" else 1
        problem = conv((2, 6, 5, 6), 6, (3, 3), (2, 1), (1, 1), groups=groups)
        CONTRACT.check_views(BY_NAME[name], problem, own_passes(BY_NAME[name]))

    @pytest.mark.parametrize(("dtype", "terms"), [(torch.float16, 2304), (torch.bfloat16, 288)], ids=["fp16", "bf16"])
    @pytest.mark.parametrize("name", ["triton_s", "triton_depthwise"])
    def test_half_precision_is_added_up_in_fp32(
        self, many_splits: None, name: str, dtype: torch.dtype, terms: int
    ) -> None:
        """A sum of ones in half precision stops at 2048 or 256; sums on the way to a small result leave its range."""
        groups = 2 if name == "triton_depthwise" else 1
        problem = replace(conv((1, 2, 48, terms // 48), 2, (1, 1), groups=groups), dtype=dtype)
        ones, algorithm = torch.ones(problem.input_shape, dtype=dtype), BY_NAME[name]
        assert algorithm.grad_weight(problem, ones, ones).flatten().tolist() == [float(terms)] * (4 // groups)
        loud = torch.full(problem.input_shape, 200.0, dtype=dtype)
        signed = loud.clone()
        signed[:, :, 24:] *= -1
        assert algorithm.grad_weight(problem, signed, loud).flatten().tolist() == [0.0] * (4 // groups)
        if groups == 1:
            deep = replace(conv((1, terms, 1, 1), 2, (1, 1)), dtype=dtype)
            x, weight = torch.ones(deep.input_shape, dtype=dtype), torch.ones(deep.weight_shape, dtype=dtype)
            assert algorithm.forward(deep, x, weight, None).flatten().tolist() == [float(terms)] * 2


class TestHip:
    """Kernels in C++, as host code."""

    pytestmark = hip

    @pytest.mark.parametrize(("tiles", "case", "turn"), each_kernel(HIP))
    def test_values(self, tiles: Sequence[Algorithm], case: ConvProblem, turn: int) -> None:
        chosen = taking_turns(tiles, case, turn)
        if chosen is not None:
            CONTRACT.check_values(*chosen, own_passes(chosen[0]))

    def test_sums_have_an_order_and_a_workspace(self) -> None:
        """Many splits, so that several lanes add."""
        problem, algorithm = conv((4, 4, 40, 40), 8, (1, 1)), BY_NAME["hip_256x16"]
        assert algorithm.workspace_bytes(problem) >= 8 * math.prod(problem.weight_shape) * 4
        CONTRACT.check_order(algorithm, problem, ("grad_weight",))
        CONTRACT.check_workspace(algorithm, problem)
        CONTRACT.check_large_means(algorithm, problem)

    def test_views(self) -> None:
        CONTRACT.check_views(BY_NAME["hip_256x16"], CASES["1x1"])
