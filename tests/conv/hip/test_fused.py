"""Convolution, bias and activation in one kernel of engine hip, run as host code and compared with fp64."""

import pytest
import torch

from yolo_rocm.conv.exactness import allowed_error
from yolo_rocm.conv.fused import hip as fused_hip
from yolo_rocm.conv.fused.algorithms import FUSED_ALGORITHMS
from yolo_rocm.conv.fused.hip import HipEpilogued
from yolo_rocm.conv.fused.patch import FusedPatch
from yolo_rocm.conv.fused.plan import FUSED, FusedPlanner, Operands
from yolo_rocm.conv.hip.gemm import HipGemm
from yolo_rocm.conv.hip.tiles import Tile
from yolo_rocm.conv.plan import CONVOLUTION
from yolo_rocm.conv.triton.calls import Epilogue
from yolo_rocm.engines.activations import ACTIVATIONS
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.trust import checks

from ..test_fused_interpreter import in_fp64, problem
from . import on_host

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("host"),
]
EPILOGUED = {each.name: each for each in FUSED_ALGORITHMS if isinstance(each, HipEpilogued)}
SMALL = HipEpilogued(HipGemm("small", Tile(32, 16, 8, 4, 4), Tile(16, 32, 8, 4, 4)))
DEPTHWISE, FEW, WINOGRAD = (EPILOGUED[f"hip_{name}"] for name in ("depthwise", "few_channels", "winograd"))
SILU = {"activation": "silu"}


def check(algorithm, given, operands=None) -> None:
    operands = operands or Operands.of(given)
    assert algorithm.not_supported_reasons(given) == []
    found = FUSED.run(algorithm, given, "forward", operands)
    assert found.is_contiguous(
        memory_format=torch.channels_last if given.conv.channels_last else torch.contiguous_format
    )
    assert relative_error(found, in_fp64(given, operands)) <= allowed_error(given.conv, "forward")


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        (SMALL, problem((1, 20, 5, 7), 20, 3, stride=2, **SILU)),
        (SMALL, problem((1, 20, 5, 7), 20, 3, stride=2, last=True, dtype=torch.float16, **SILU)),
        (SMALL, problem((2, 8, 4, 4), 18, 1, **SILU)),
        (SMALL, problem((1, 16, 5, 5), 24, 3, groups=2, dilation=2, last=True, **SILU)),
        (FEW, problem((1, 3, 5, 7), 20, 3, stride=2, **SILU)),
        (FEW, problem((1, 3, 5, 7), 20, 3, last=True, dtype=torch.bfloat16, **SILU)),
        (DEPTHWISE, problem((1, 20, 5, 7), 20, 3, groups=20, **SILU)),
        (DEPTHWISE, problem((1, 20, 5, 7), 20, 3, groups=20, last=True, **SILU)),
        (WINOGRAD, problem((1, 20, 5, 6), 20, 3, **SILU)),
        (WINOGRAD, problem((1, 20, 5, 7), 36, 3, last=True, **SILU)),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_bias_and_silu_are_computed_with_the_convolution(algorithm, given) -> None:
    check(algorithm, given)


@pytest.mark.parametrize("activation", [each for each in ACTIVATIONS if each != "silu"])
@pytest.mark.parametrize("bias", [False, True], ids=["alone", "bias"])
def test_every_activation_with_and_without_bias(activation: str, bias: bool) -> None:
    slope = 0.3 if activation == "leaky_relu" else 0.0
    check(SMALL, problem((1, 20, 5, 7), 20, 3, activation=activation, slope=slope, bias=bias))


@pytest.mark.parametrize("algorithm", [SMALL, DEPTHWISE], ids=lambda each: each.name)
@pytest.mark.parametrize("start", [20, 2], ids=["aligned", "between two vectors"])
def test_some_channels_of_a_tensor(algorithm, start: int, monkeypatch) -> None:
    """Read where they are, if the address allows it."""
    copied = []
    plain = fused_hip.readable
    monkeypatch.setattr(fused_hip, "readable", lambda x: (copied.append(x), plain(x))[1])
    given = problem((2, 20, 5, 7), 20, 3, groups=20 if algorithm is DEPTHWISE else 1, last=True, **SILU)
    whole = Operands.of(given)
    wide = torch.randn(2, 60, 5, 7).contiguous(memory_format=torch.channels_last)
    wide[:, start : start + 20] = whole.x
    check(algorithm, given, whole._replace(x=wide[:, start : start + 20]))
    assert bool(copied) == (start == 2)


def test_extreme_values_stay_what_torch_makes_of_them() -> None:
    given = problem((1, 16, 1, 4), 16, 1, bias=False, **SILU)
    x = torch.zeros(1, 16, 1, 4)
    x[:, 0] = torch.tensor([float("nan"), -1e30, 1e30, 0.0])
    found = FUSED.run(SMALL, given, "forward", Operands(x, torch.eye(16).view(16, 16, 1, 1), torch.zeros(16)))[0, 0, 0]
    assert found[0].isnan()
    assert torch.equal(found[1:], torch.tensor([-0.0, 1e30, 0.0]))


def test_a_weight_is_read_at_each_pass(monkeypatch) -> None:
    """Also where it was changed behind torch's back."""
    monkeypatch.setattr(checks, "interpreted", lambda: True)
    patch = FusedPatch(("cpu",), FusedPlanner("hip", remember=False))
    x, weight = torch.randn(1, 16, 6, 6), torch.randn(32, 16, 3, 3)
    route = patch.route(x, weight, False, ((1, 1), (1, 1), (1, 1), 1), Epilogue("silu"))
    assert isinstance(route.algorithm, HipEpilogued)
    for _ in range(2):
        expected = torch.nn.functional.silu(torch.conv2d(x, weight, None, padding=1))
        assert relative_error(route.forward(x, weight, None), expected.double()) < 1e-6
        weight.data.mul_(2.0)


@pytest.mark.parametrize("channels", [16, 32, 64, 80])
def test_without_triton_a_tile_that_fits_is_guessed(channels: int) -> None:
    """`triton+hip` guesses as `hip` does, with activation and without: not whatever comes first."""
    given = problem((1, 16, 8, 8), channels, 3, **SILU)
    for operator, one in ((FUSED, given), (CONVOLUTION, given.conv)):
        guesses = operator.preferred(one, "forward", ["triton", "hip"])
        supporting = [
            each for each in guesses if each in EPILOGUED and not EPILOGUED[each].not_supported_reasons(given)
        ]
        assert supporting == [each for each in operator.preferred(one, "forward", ["hip"]) if each in supporting]
        assert channels % EPILOGUED[supporting[0]].inner.gather.n == 0


def test_the_kernels_qualify_with_their_activation(fresh, monkeypatch) -> None:
    monkeypatch.setattr(checks, "interpreted", lambda: False)
    for kernel, algorithm in {each.kernel: each for each in EPILOGUED.values()}.items():
        small = FUSED.small(problem((1, 20, 5, 7), 20, 3, **SILU), kernel)
        checks.check(FUSED, algorithm, small)
        assert algorithm.not_supported_reasons(small) == []
