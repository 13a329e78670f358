"""The contract of every algorithm of convolution: gemm as it is, Triton's in its interpreter, hip's as host code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.exactness import allowed_error, in_doubles, native_passes
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME, INFERENCE_ALGORITHMS, Algorithm
from yolo_rocm.conv.gemm import depthwise
from yolo_rocm.conv.hip import base as hip_base
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, InferencePlanner, Operands, Planner
from yolo_rocm.conv.problem import ConvProblem, laid_out, suggests_channels_last
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.conv.triton.tiles import SplitK
from yolo_rocm.engines.activations import ACTIVATIONS, LEAKY_RELU
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.names import Pass
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.engines.trust import checks
from yolo_rocm.engines.trust.record import record_of

from ..engines.contract import Contract
from ..interpreted import interpreter
from .cases import BY_KERNEL, CASES, DEPTHWISE, activated, conv, exact
from .hip import on_host

CONTRACT = Contract(CONVOLUTION, exact, allowed_error)
INFERENCE = Contract(InferencePlanner.operator, exact, allowed_error)
FORWARD = (Pass.FORWARD,)
# Winograd's transforms cost digits: the tuner measures how many. What is wrong errs by far more than this.
LOOSE = replace(CONTRACT, allowed=lambda problem, which: 16 * allowed_error(problem, which))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
GEMM = [a for a in ALGORITHMS if a.engine == "gemm" and a.name != "depthwise_kernel"]  # that one needs a GPU
OF_INFERENCE = [a for a in INFERENCE_ALGORITHMS if a not in ALGORITHMS]
TRITON = [a for a in ALGORITHMS if a.engine == "triton"]
HIP = [a for a in ALGORITHMS if a.engine == "hip"]


def _within(x: torch.Tensor, around: Sequence[tuple[int, int]], steps: Sequence[int] = (1, 1, 1, 1)) -> torch.Tensor:
    """Return the same values as part of a larger tensor in the same layout, whose others are not a number."""
    shape = [before + size * step + after for size, step, (before, after) in zip(x.shape, steps, around, strict=True)]
    wide = laid_out(x.new_full(shape, float("nan")), suggests_channels_last(x))
    parts = zip(x.shape, steps, around, strict=True)
    return wide[tuple(slice(b, b + size * step, step) for size, step, (b, _) in parts)].copy_(x)


# What a source may be instead of a whole tensor.
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "channels": lambda x: _within(x, ((0, 0), (4, 8), (0, 0), (0, 0))),
    "every second sample": lambda x: _within(x, ((0, 0),) * 4, (2, 1, 1, 1)),
    "a window": lambda x: _within(x, ((0, 0), (0, 0), (4, 1), (4, 3))),
    "every second column": lambda x: _within(x, ((0, 0),) * 4, (1, 1, 1, 2)),
    "turned": lambda x: laid_out(x.transpose(2, 3), suggests_channels_last(x)).transpose(2, 3),
    "channels outside": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "the same sample": lambda x: x[:1].expand(x.shape),
    "the same channel": lambda x: x[:, :1].expand(x.shape),
    "the same row": lambda x: x[:, :, :1].expand(x.shape),
    "one number": lambda x: x[:1, :1, :1, :1].expand(x.shape),
}

# Those that a kernel does not read where they are: one of channels_last values, and one of whole planes.
NO_VECTORS = ("channels outside", "one number", "the same channel")
NO_PLANES = ("a window", "every second column", "one number", "the same row", "turned")


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


def test_torchs_own_depthwise_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs alone have it: here torch computes in its place, and all that is made of it is ours."""
    algorithm, cpu = BY_NAME["depthwise_kernel"], "torch has this kernel for GPUs only, this is cpu"
    able = [problem for problem in DEPTHWISE.values() if algorithm.not_supported_reasons(problem) == [cpu]]
    assert len(able) == len(DEPTHWISE) - 1  # all but that with two outputs for each channel
    monkeypatch.setattr(type(algorithm), "not_supported_reasons", lambda self, problem: [])
    monkeypatch.setattr(
        depthwise,
        "_depthwise",
        lambda x, weight, bias, *geometry: torch.nn.functional.conv2d(x, weight, bias, *geometry, groups=x.shape[1]),
    )
    for problem in able:
        CONTRACT.check_values(algorithm, problem)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gemm_with_bias_and_activation(activation: str) -> None:
    """Torch's activation follows, in the memory of the result and in its layout, within any budget."""
    for last, bias in ((False, True), (True, False)):
        case = replace(CASES["3x3"], channels_last=last)
        problem = activated(case, activation, 0.3 if activation == LEAKY_RELU else 0.0, bias)
        for name in ("windows", "columns", "aten"):
            INFERENCE.check_values(BY_NAME[name], problem)
        operands = Operands.of(problem)
        for budget in (1, 1 << 40):
            y = INFERENCE.operator.run(BY_NAME["windows"], problem, Pass.FORWARD, operands, budget)
            assert y.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
            torch.testing.assert_close(y.double(), exact(problem, Pass.FORWARD, operands), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_large_values_do_not_overflow_where_native_does_not(dtype: torch.dtype) -> None:
    """Activations near the end of half precision: transforms and partial sums may not leave its range."""
    for problem in (replace(case, dtype=dtype) for case in CASES.values()):
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


@pytest.fixture
def qualifying(monkeypatch: pytest.MonkeyPatch, fresh: None, tmp_path: Path) -> None:
    """Kernels have to qualify, and nothing is remembered of any."""
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setattr(checks, "interpreted", lambda: False)


triton = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
hip = [
    pytest.mark.once,
    pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("host"),
]


def check_activation(algorithm: Algorithm, activation: str) -> None:
    """A kernel's own activation, without bias in NCHW and with one in NHWC."""
    assert algorithm.activates
    slope = 0.3 if activation == LEAKY_RELU else 0.0
    name = next((case for case in ("image", "depthwise") if BY_KERNEL[str(algorithm.kernel)][0] == case), "3x3")
    for turn in (False, True):
        case = replace(CASES[name], channels_last=turn)
        INFERENCE.check_values(algorithm, activated(case, activation, slope, bias=turn))


def check_extreme_values(algorithm: Algorithm) -> None:
    """SiLU of what is no number, or far from zero, is what torch makes of it."""
    problem = activated(conv((1, 16, 1, 4), 16, (1, 1)), bias=False)
    x = torch.zeros(1, 16, 1, 4)
    x[:, 0] = torch.tensor([float("nan"), -1e30, 1e30, 0.0])
    operands = Operands(x, torch.eye(16).view(16, 16, 1, 1).clone(), x)
    result = INFERENCE.operator.run(algorithm, problem, Pass.FORWARD, operands)[0, 0, 0]
    assert result[0].isnan()
    assert torch.equal(result[1:], torch.tensor([-0.0, 1e30, 0.0]))


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
        problem, algorithm = conv((1, 4, 9, 16), 4, (3, 3), (1, 1), (1, 1), groups=groups), BY_NAME[name]
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

    @pytest.mark.parametrize("name", ["triton_s", "triton_depthwise"])
    def test_half_precision_is_added_up_in_fp32(self, many_splits: None, name: str) -> None:
        """A sum of ones in bf16 stops at 256; sums on the way to a small result leave the range of fp16."""
        groups, algorithm = 2 if name == "triton_depthwise" else 1, BY_NAME[name]
        plain = conv((1, 2, 8, 36), 2, (1, 1), groups=groups)
        ones = torch.ones(plain.input_shape, dtype=torch.bfloat16)
        summed = algorithm.grad_weight(replace(plain, dtype=torch.bfloat16), ones, ones)
        assert summed.unique().tolist() == [288.0]
        loud = torch.full(plain.input_shape, 200.0, dtype=torch.float16)
        signed = torch.cat((loud[:, :, :4], -loud[:, :, 4:]), dim=2)
        assert not algorithm.grad_weight(replace(plain, dtype=torch.float16), signed, loud).any()
        if groups == 1:
            deep = replace(conv((1, 288, 1, 1), 2, (1, 1)), dtype=torch.bfloat16)
            x, weight = (torch.ones(shape, dtype=torch.bfloat16) for shape in (deep.input_shape, deep.weight_shape))
            assert algorithm.forward(deep, x, weight, None).unique().tolist() == [288.0]

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    @pytest.mark.parametrize("name", ["triton_m", "triton_flat", "triton_depthwise"])
    def test_every_activation_with_and_without_bias(self, name: str, activation: str) -> None:
        check_activation(BY_NAME[name], activation)

    def test_extreme_values_stay_what_torch_makes_of_them(self) -> None:
        check_extreme_values(BY_NAME["triton_s"])

    @pytest.mark.parametrize("algorithm", OF_INFERENCE, ids=lambda a: a.name)
    def test_every_tile_of_inference(self, algorithm: Algorithm) -> None:
        problem = replace(activated(CASES["3x3"]), dtype=torch.float16, channels_last=True)
        reasons = algorithm.not_supported_reasons(problem)
        if any("no tile" in why for why in reasons):
            pytest.skip(reasons[0])
        INFERENCE.check_values(algorithm, problem)
        assert algorithm.workspace_bytes(problem) == 4 * 20 * 20 * 9


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

    @pytest.mark.parametrize(
        ("name", "case", "copied"),
        [
            ("hip_256x16", "3x3", ((), NO_VECTORS)),
            ("hip_256x16", "whole vectors of pixels, 1x1", (NO_PLANES, NO_VECTORS)),
            ("hip_few_channels", "image", ((), ())),
            ("hip_depthwise", "depthwise", ((), NO_VECTORS)),
            ("hip_winograd", "3x3", ((), NO_VECTORS)),
        ],
    )
    def test_views(self, monkeypatch: pytest.MonkeyPatch, name: str, case: str, copied: Any) -> None:
        """Every stride counts; a view that only another kernel could read is copied, as is one at an odd address."""
        copies = []
        readable = hip_base.readable
        monkeypatch.setattr(hip_base, "readable", lambda x: copies.append(x) or readable(x))
        CONTRACT.check_views(BY_NAME[name], CASES[case])
        for last in (False, True):
            problem = replace(CASES[case], channels_last=last)
            operands = Operands.of(problem)
            for kind, view in VIEWS.items():
                given = Operands(view(operands.x), operands.weight, view(operands.grad))
                copies.clear()
                CONTRACT.check_values(BY_NAME[name], problem, FORWARD, given)
                assert bool(copies) == (kind in copied[last]), (kind, last)
                if name != "hip_few_channels":
                    CONTRACT.check_values(BY_NAME[name], problem, ("grad_input",), given)

    def test_a_stride_beyond_32_bits_or_an_odd_address_is_not_given_to_a_kernel(self, monkeypatch: Any) -> None:
        """The stride of a size of 1 may be anything."""
        problem, copies = CASES["a row of pixels"], []
        monkeypatch.setattr(hip_base, "readable", lambda x: copies.append(x) or laid_out(x, False))
        operands = Operands.of(problem)
        odd = operands.x.as_strided(problem.input_shape, (45, 9, 2**33, 1))
        CONTRACT.check_values(BY_NAME["hip_256x16"], problem, FORWARD, operands._replace(x=odd))
        assert len(copies) == 1
        odd = torch.cat((torch.zeros(1), operands.x.flatten()))[1:].view(problem.input_shape)
        CONTRACT.check_values(BY_NAME["hip_256x16"], problem, FORWARD, operands._replace(x=odd))
        assert len(copies) == 2

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    @pytest.mark.parametrize("name", ["hip_256x16", "hip_few_channels", "hip_depthwise", "hip_winograd"])
    def test_every_activation_with_and_without_bias(self, name: str, activation: str) -> None:
        check_activation(BY_NAME[name], activation)

    def test_extreme_values_stay_what_torch_makes_of_them(self) -> None:
        check_extreme_values(BY_NAME["hip_256x16"])

    @pytest.mark.parametrize(("channels_last", "dtype"), [(False, torch.float32), (True, torch.float16)], ids=str)
    @pytest.mark.parametrize("kernel", sorted({str(algorithm.tested_by().kernel) for algorithm in HIP}))
    def test_every_kernel_qualifies(self, qualifying: None, kernel: str, channels_last: bool, dtype: Any) -> None:
        """For its first use on a device, whether or not other tests interpret kernels of Triton."""
        algorithm = next(each for each in HIP if each.kernel == kernel)
        problem = replace(CASES["3x3"], channels_last=channels_last, dtype=dtype if algorithm.exact else torch.float32)
        small = CONVOLUTION.small(problem, kernel)
        assert algorithm.not_supported_reasons(small) == small.problems() == []
        checks.check(CONVOLUTION, algorithm, small)
        assert record_of("cpu").quarantine_reason("conv", kernel, small.dtype) is None

    def test_what_is_measured_has_every_kernel_that_supports_the_layer(self, qualifying: None) -> None:
        problem, planner = conv((1, 16, 8, 8), 16, (3, 3), (1, 1), (1, 1)), Planner("auto", remember=False)
        able = [a for a in planner.checked_candidates(problem) if a.engine == "hip"]
        tiles = {a.name for a in HIP if a.tested_by().kernel == "hip_gemm"} - {"hip_transposed"}
        assert {a.name for a in able} == tiles | {"hip_winograd"}
        for which, timings in planner.tune([problem])[problem].items():
            timed = {each.algorithm for each in timings if each.algorithm.startswith("hip_")}
            assert timed == {a.name for a in able if a.worth_measuring(problem, which)}
