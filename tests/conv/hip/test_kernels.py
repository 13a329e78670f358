"""Every kernel of engine hip, run as host code through its algorithm and compared with fp64."""

import pytest
import torch
import torch.nn.functional as F

from yolo_rocm.conv.algorithms import ALGORITHMS
from yolo_rocm.conv.exactness import allowed_error
from yolo_rocm.conv.hip.depthwise import HipDepthwise
from yolo_rocm.conv.hip.few_channels import HipFewChannels
from yolo_rocm.conv.hip.gemm import HipGemm
from yolo_rocm.conv.hip.tiles import TILES, Tile
from yolo_rocm.conv.hip.winograd import HipWinograd
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.engines.measure import relative_error

from . import on_host

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(on_host.COMPILER is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("host"),
]

HIP = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "hip"]
SMALL = HipGemm("small", Tile(32, 16, 8, 4, 4), Tile(16, 32, 8, 4, 4))
# input, weight, stride, padding, dilation, groups
EVEN = ((2, 16, 6, 8), (20, 16, 3, 3), (2, 2), (1, 1), (1, 1), 1)
POINTWISE = ((2, 12, 6, 6), (20, 12, 1, 1), (1, 1), (0, 0), (1, 1), 1)
STRIDED_POINTWISE = ((3, 5, 5, 4), (7, 5, 1, 1), (2, 2), (0, 0), (1, 1), 1)
IMAGE = ((2, 3, 11, 10), (20, 3, 3, 3), (2, 2), (1, 1), (1, 1), 1)
GROUPED = ((2, 6, 11, 9), (10, 3, 5, 3), (2, 1), (2, 0), (1, 2), 2)
UNEVEN_PHASES = ((2, 8, 9, 9), (8, 4, 3, 3), (3, 2), (1, 2), (2, 3), 2)
DEPTHWISE = ((2, 12, 11, 9), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1), 12)
DEPTHWISE_STRIDED = ((2, 36, 9, 7), (36, 1, 5, 3), (2, 2), (2, 1), (1, 2), 36)
ODD_WINOGRAD = ((2, 12, 7, 5), (20, 12, 3, 3), (1, 1), (0, 2), (1, 1), 1)
EVEN_WINOGRAD = ((1, 16, 4, 6), (36, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1)

NCHW, NHWC = False, True
CASES = [
    (SMALL, EVEN, NCHW),
    (SMALL, EVEN, NHWC),
    (SMALL, POINTWISE, NCHW),
    (SMALL, POINTWISE, NHWC),
    (SMALL, STRIDED_POINTWISE, NCHW),
    (SMALL, GROUPED, NHWC),
    (SMALL, UNEVEN_PHASES, NHWC),
    (HipFewChannels(), IMAGE, NCHW),
    (SMALL, IMAGE, NHWC),
    (HipDepthwise(), DEPTHWISE, NCHW),
    (HipDepthwise(), DEPTHWISE_STRIDED, NHWC),
    (HipWinograd(), EVEN_WINOGRAD, NCHW),
    (HipWinograd(), ODD_WINOGRAD, NHWC),
]


def check(algorithm, case, channels_last: bool, dtype: torch.dtype = torch.float32) -> None:
    shape, weight_shape, stride, padding, dilation, groups = case
    layout = torch.channels_last if channels_last else torch.contiguous_format
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int) -> torch.Tensor:
        values = torch.randn(size, generator=generator).to(dtype)
        return values.contiguous(memory_format=layout) if len(size) == 4 else values

    x, weight, bias = draw(*shape), draw(*weight_shape), draw(weight_shape[0])
    problem = ConvProblem.of(x, weight, stride, padding, dilation, False, (0, 0), groups)
    assert algorithm.not_supported_reasons(problem) == []
    grad = draw(*problem.output_shape)
    doubles = [tensor.double().requires_grad_() for tensor in (x, weight)]
    exact = F.conv2d(*doubles, bias.double(), stride, padding, dilation, groups)
    exact.backward(grad.double())
    forward, backward = algorithm.bound(problem)
    y = forward(x, weight, bias)
    gx, gw = backward(grad, x, weight, (True, True))
    wanted = {"forward": exact.detach(), "grad_input": doubles[0].grad, "grad_weight": doubles[1].grad}
    for (which, right), found in zip(wanted.items(), (y, gx, gw), strict=True):
        assert found.dtype == dtype
        assert found.is_contiguous(memory_format=layout)
        error = relative_error(found.double(), right)
        assert error <= allowed_error(problem, which), (which, error)


@pytest.mark.parametrize(("algorithm", "case", "channels_last"), CASES, ids=lambda part: getattr(part, "name", None))
def test_the_three_passes(algorithm, case, channels_last: bool) -> None:
    check(algorithm, case, channels_last)


@pytest.mark.parametrize(
    ("algorithm", "case", "dtype"),
    [(SMALL, EVEN, torch.float16), (HipDepthwise(), DEPTHWISE, torch.bfloat16)],
    ids=["gemm-float16", "depthwise-bfloat16"],
)
def test_half_precision_is_summed_in_fp32(algorithm, case, dtype: torch.dtype) -> None:
    check(algorithm, case, True, dtype)


@pytest.mark.parametrize("name", [name for name in TILES if name not in ("256x16", "128x32")])
def test_tiles_compute_right(name: str) -> None:
    """The first of those left out is what few channels take; the other differs from the small one in numbers alone."""
    check(HipGemm(name, *TILES[name]), ((1, 16, 12, 12), (20, 16, 3, 3), (1, 1), (1, 1), (1, 1), 1), name == "128x64")


def test_partial_sums_are_added_in_a_fixed_order() -> None:
    """Many splits, so that several lanes add; the same input gives the same bits."""
    x, grad = torch.randn(4, 4, 40, 40), torch.randn(4, 8, 40, 40)
    problem = ConvProblem.of(x, torch.empty(8, 4, 1, 1), (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    call, splits = SMALL.weight_steps(problem, grad.stride(), x.stride())
    assert splits >= 8
    assert call.grid[2] == splits
    first, second = (SMALL.grad_weight(problem, grad, x) for _ in range(2))
    assert torch.equal(first, second)
    exact = torch.einsum("nohw,nchw->oc", grad.double(), x.double())
    assert relative_error(first[:, :, 0, 0].double(), exact) < 1e-6


def test_odd_strides_and_addresses() -> None:
    """Views that start between two vectors, or that skip values, are copied first."""
    x, weight = torch.randn(2, 8, 9, 8), torch.randn(12, 8, 1, 1)
    problem = ConvProblem.of(x, weight, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    exact = F.conv2d(x.double(), weight.double())
    shifted = torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x)
    skipping = torch.empty(2, 8, 9, 16)[..., ::2].copy_(x)
    for view in (shifted, skipping):
        assert relative_error(SMALL.forward(problem, view, weight, None).double(), exact) < 1e-6


def test_names_and_kernels_are_unique() -> None:
    every = HIP
    names = [algorithm.name for algorithm in every]
    assert len(set(names)) == len(names)
    assert all(name.startswith("hip_") for name in names)
    assert not set(names) & {algorithm.kernel for algorithm in every}
