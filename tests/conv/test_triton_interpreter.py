"""The triton engine on a CPU, in Triton's interpreter: every kernel, tile, pass and layout against fp64."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import yolo_rocm
from yolo_rocm.conv.algorithms import ALGORITHMS, BY_NAME
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.plan import CONVOLUTION, Operands
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.triton import calls
from yolo_rocm.conv.triton import common as triton_common
from yolo_rocm.conv.triton import depthwise as triton_depthwise
from yolo_rocm.conv.triton import gemm as triton_gemm
from yolo_rocm.conv.triton.tiles import SplitK
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.engines.triton.available import FMA, NVIDIA, missing_reason

from ..interpreted import interpreter
from ..sick_vendor import sick_vendor
from ..thinning import deep_but
from ..torch_samples import CONVOLUTIONS
from .problems import error_ratios, in_doubles, native_passes, plain_sum_error, random_problem
from .test_algorithms import assert_as_exact_as_native, gradients, sample_call

pytestmark = [
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
    pytest.mark.usefixtures("interpreting"),
]
TRITON = [algorithm for algorithm in ALGORITHMS if algorithm.engine == "triton"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ROOM = 1 << 40


@pytest.fixture(scope="module")
def interpreting():
    with interpreter():
        yield


def run(algorithm, problem, which, operands):
    return CONVOLUTION.run(algorithm, problem, which, operands, ROOM)


def own_passes(algorithm):
    """Return the passes an algorithm does not take over from the plain tile of its size."""
    name = algorithm.name
    return ("forward",) if name == "triton_flat" else ("grad_weight",) if "rows" in name else PASSES


def conv(
    shape,
    out_channels,
    kernel,
    stride=(1, 1),
    padding=(0, 0),
    dilation=(1, 1),
    groups=1,
    transposed=False,
    spare=(0, 0),
):
    weight = (shape[1], out_channels // groups) if transposed else (out_channels, shape[1] // groups)
    made = ConvProblem(
        shape, (*weight, *kernel), stride, padding, dilation, spare, groups, transposed, torch.float32, "cpu", False
    )
    assert not made.problems()
    return made


def assert_exact(algorithm, problem, passes=PASSES):
    ratios = error_ratios(algorithm, problem, run, passes=passes)
    assert all(ratio <= 2 for ratio in ratios.values()), (algorithm.name, str(problem), ratios)


LAYOUTS = (torch.float32, False), (torch.float16, False), (torch.float32, True), (torch.bfloat16, True)


@pytest.mark.parametrize(
    ("dtype", "channels_last"),
    [pytest.param(*LAYOUTS[0], id="fp32 nchw"), pytest.param(*LAYOUTS[3], id="bf16 nhwc", marks=pytest.mark.deep)],
)
def test_every_tile(poisoned, dtype, channels_last):
    """Each algorithm on a layer whose sizes are multiples of nothing; together they are all there are.

    Half precision, and each data type in the other layout, are in the tests below.
    """
    layers = (
        conv((1, 17, 3, 4), 5, (2, 3), (1, 2), (1, 1)),
        conv((2, 5, 5, 6), 5, (3, 3), (2, 1), (1, 1), groups=5),
        conv((2, 3, 5, 6), 18, (3, 3), (2, 1), (1, 1)),
        conv((1, 6, 3, 4), 4, (3, 2), (2, 2), transposed=True),
    )
    tried = set()
    for problem in (replace(layer, dtype=dtype, channels_last=channels_last) for layer in layers):
        for algorithm in TRITON:
            if algorithm.name not in tried and not algorithm.not_supported_reasons(problem):
                if algorithm.name.startswith("triton_rows") and problem.groups > 1:
                    continue
                tried.add(algorithm.name)
                assert_exact(algorithm, problem, own_passes(algorithm))
    assert tried == {a.name for a in TRITON if not (channels_last and a.name.endswith("_turned"))}


ODD = {
    "image": conv((2, 3, 9, 7), 16, (3, 3), (2, 2), (1, 1)),
    "five channels": conv((2, 5, 6, 7), 20, (3, 3), (1, 1), (1, 1)),
    "eighty channels": conv((1, 80, 2, 4), 20, (1, 3), (1, 1), (0, 1)),
    "to eighty channels": conv((1, 20, 4, 3), 80, (1, 1)),
    "1x1, stride 2": conv((2, 20, 5, 4), 5, (1, 1), (2, 2)),
    "1x3": conv((1, 6, 5, 7), 9, (1, 3), (1, 1), (0, 1)),
    "7x2": conv((1, 5, 9, 6), 4, (7, 2), (2, 1), (3, 1)),
    "2x2, stride 2": conv((2, 8, 6, 8), 20, (2, 2), (2, 2)),
    "stride larger than the kernel": conv((1, 4, 9, 8), 6, (1, 2), (3, 3)),
    "unequal strides": conv((1, 20, 8, 9), 5, (3, 3), (1, 3), (1, 0)),
    "stride 3": conv((2, 4, 10, 8), 6, (3, 5), (3, 3), (1, 2)),
    "dilated": conv((1, 6, 9, 8), 5, (3, 3), (1, 1), (2, 3), (2, 3)),
    "stride and dilation alike": conv((1, 5, 11, 10), 4, (3, 3), (2, 3), (2, 1), (2, 3)),
    "stride and dilation share a factor": conv((1, 4, 13, 15), 4, (3, 3), (4, 4), (3, 5), (2, 6)),
    "more padding than kernel": conv((1, 4, 3, 4), 6, (2, 2), (1, 2), (4, 3)),
    "groups": conv((2, 8, 5, 6), 12, (3, 3), (1, 1), (1, 1), groups=4),
    "groups, stride 2": conv((1, 6, 6, 5), 6, (3, 3), (2, 2), (1, 1), groups=2),
    "one pixel": conv((3, 8, 1, 1), 16, (3, 3), (1, 1), (1, 1)),
    "a row of pixels": conv((1, 5, 1, 9), 3, (1, 3), (1, 2), (0, 2)),
    "depthwise": conv((2, 8, 5, 6), 8, (3, 3), (1, 1), (1, 1), groups=8),
    "depthwise, stride 2, 5x4": conv((1, 5, 9, 7), 5, (5, 4), (2, 2), (2, 2), groups=5),
    "depthwise, two for each": conv((1, 6, 5, 6), 12, (3, 3), (2, 1), (1, 1), groups=6),
    "depthwise, dilated by its stride": conv((1, 4, 9, 8), 4, (3, 3), (2, 2), (2, 1), (2, 4), groups=4),
    "depthwise, 7x7": conv((1, 4, 8, 9), 4, (7, 7), (1, 1), (3, 3), groups=4),
    "depthwise, one pixel": conv((2, 9, 1, 1), 9, (3, 3), (1, 1), (1, 1), groups=9),
    "to eighty channels, 3x3": conv((1, 20, 3, 4), 80, (3, 3), (1, 1), (1, 1)),
    "image to eighty channels": conv((1, 3, 4, 3), 80, (3, 3), (1, 1), (1, 1)),
}


# What is odd about these, another one has too.
ALSO = {
    "five channels", "to eighty channels, 3x3", "2x2, stride 2", "unequal strides", "stride 3", "7x2",
    "groups, stride 2", "depthwise, 7x7",
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.deep] if n in ALSO else []) for n in ODD])
def test_odd_shapes(poisoned, name):
    """Layouts, data types and sizes of tiles take turns, each at its own pace."""
    number = list(ODD).index(name)
    problem = replace(ODD[name], dtype=DTYPES[number % 3], channels_last=number % 4 < 2)
    size, rows = ("s", "m", "l", "xl")[number * 3 // 2 % 4], ("s", "m", "l")[number // 2 % 3]
    if BY_NAME["triton_depthwise"].not_supported_reasons(problem):
        names = [f"triton_{size}", "triton_flat", f"triton_rows_{rows}", f"triton_{size}_turned"]
    else:
        names = ["triton_depthwise"]
    for algorithm in (BY_NAME[name] for name in names):
        if not algorithm.not_supported_reasons(problem):
            passes = ("grad_weight",) if algorithm.name.endswith("_turned") else own_passes(algorithm)
            assert_exact(algorithm, problem, passes)


def each_block():
    """Return families, data types and layouts; of each layout one data type for each family, the other one is deep."""
    names = ("fp32 nchw", "fp16 nchw", "fp32 nhwc", "bf16 nhwc")
    for number, (name, layout) in enumerate(zip(names, LAYOUTS, strict=True)):
        for turn, family in enumerate((NVIDIA, FMA)):
            marks = [pytest.mark.deep] if (number + turn) % 2 else []
            yield pytest.param(family, *layout, id=f"{name} {family}", marks=marks)


@pytest.mark.parametrize(("family", "dtype", "channels_last"), list(each_block()))
def test_depthwise_blocks(poisoned, monkeypatch, family, dtype, channels_last):
    """More channels than a block of any family has, and more pixels than one of most."""
    monkeypatch.setattr(triton_depthwise, "family", lambda device: family)
    monkeypatch.setattr(triton_common, "_splits", {})
    channels = 66 if channels_last else 9
    problem = conv((2, channels, 7, 10), channels, (3, 3), (1, 1), (1, 1), groups=channels)
    assert_exact(BY_NAME["triton_depthwise"], replace(problem, dtype=dtype, channels_last=channels_last))


TRANSPOSED = {
    "2x2, stride 2": conv((2, 8, 3, 4), 6, (2, 2), (2, 2), transposed=True),
    "groups and spare rows": conv((1, 6, 4, 3), 4, (3, 3), (2, 2), (1, 1), (1, 1), 2, True, (1, 1)),
    "spare rows beyond the stride": conv((1, 3, 4, 3), 5, (3, 3), (1, 1), (0, 1), (2, 2), 1, True, (1, 1)),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed(poisoned, name):
    for dtype, channels_last in ((torch.float32, False), (torch.float16, True), (torch.bfloat16, False)):
        problem = replace(TRANSPOSED[name], dtype=dtype, channels_last=channels_last)
        assert_exact(BY_NAME["triton_transposed"], problem)


def is_small(problem):
    return problem.groups * math.prod(problem.stride) <= 12 and problem.flops <= 400_000


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from(DTYPES))
def test_anything(poisoned, seed, dtype):
    rng = random.Random(seed)
    problem = next(p for p in iter(lambda: random_problem(rng, dtype), None) if is_small(p))
    supporting = [a for a in TRITON if not a.not_supported_reasons(problem)]
    for which in PASSES:
        able = [a for a in supporting if which in own_passes(a)]
        assert able, str(problem)
        assert_exact(rng.choice(able), problem, (which,))


@pytest.mark.parametrize(
    "name", ["triton_flat", "triton_m", "triton_l_turned", "triton_depthwise", "triton_transposed"]
)
def test_bias_and_tensors_that_are_views(name):
    """Sliced inputs, weights, biases, and the gradient of a sum, which has no memory of its own: its strides are 0."""
    algorithm = BY_NAME[name]
    problem = {
        "triton_depthwise": conv((2, 6, 5, 6), 6, (3, 3), (2, 1), (1, 1), groups=6),
        "triton_transposed": conv((2, 6, 3, 4), 4, (2, 2), (2, 2), transposed=True),
    }.get(name, conv((2, 6, 5, 6), 20, (3, 3), (2, 1), (1, 1)))
    assert not algorithm.not_supported_reasons(problem)
    operands, bias = Operands.of(problem), torch.randn(2 * problem.out_channels)[::2]
    x = torch.full((*operands.x.shape[:2], 9, 13), float("nan"))[:, :, 1:-1, 1::2][:, :, : operands.x.shape[2]]
    x = x[..., : operands.x.shape[3]].copy_(operands.x)
    weight = operands.weight.flip(1).transpose(0, 1).contiguous().transpose(0, 1).flip(1)
    grad = torch.full((1, 1, 1, 1), 0.5).expand(problem.output_shape)
    assert not x.is_contiguous()
    assert set(grad.stride()) == {0}
    exact = native_passes(problem, Operands(x.double(), weight.double(), grad.double()))
    results = {
        "forward": algorithm.forward(problem, x, weight, bias) - bias.view(-1, 1, 1),
        "grad_input": algorithm.grad_input(problem, grad, weight),
        "grad_weight": algorithm.grad_weight(problem, grad, x),
    }
    for which, result in results.items():
        # The bias is added and taken away again: two more roundings of larger numbers.
        most = (8 if which == "forward" else 2) * plain_sum_error(problem, which)
        assert relative_error(result, exact[which]) <= most, which


@pytest.fixture
def many_splits(monkeypatch):
    """The pixels of a gradient of a weight are split over many programs, as on a GPU of many processors."""
    for module in (triton_gemm, triton_depthwise):
        monkeypatch.setattr(module, "processors", lambda device: 8)
    monkeypatch.setattr(calls, "GEMM_SPLIT", SplitK(programs=8, steps=1))
    monkeypatch.setattr(calls, "DEPTHWISE_SPLIT", {"nchw": SplitK(programs=16, steps=1)})
    triton_common._splits.clear()
    yield
    triton_common._splits.clear()


@pytest.mark.parametrize(
    "name", deep_but(["triton_m", "triton_rows_s", "triton_depthwise"], "triton_m", "triton_depthwise")
)
def test_partial_sums_add_up_to_the_same_every_time(poisoned, many_splits, monkeypatch, name):
    groups = 4 if name == "triton_depthwise" else 2 if name == "triton_m" else 1
    problem = conv((3, 4, 17, 19), 4, (3, 3), (1, 1), (1, 1), groups=groups)
    taken = []
    inner = calls.sum_partials
    monkeypatch.setattr(calls, "sum_partials", lambda p, splits, *rest: taken.append(splits) or inner(p, splits, *rest))
    algorithm, operands = BY_NAME[name], Operands.of(problem)
    first, second = (run(algorithm, problem, "grad_weight", operands) for _ in range(2))
    assert torch.equal(first, second)
    exact = native_passes(problem, in_doubles(operands))["grad_weight"]
    assert relative_error(first, exact) <= 2 * plain_sum_error(problem, "grad_weight")
    assert min(taken) >= 4
    assert algorithm.workspace_bytes(problem) >= max(taken) * math.prod(problem.weight_shape) * 4


@pytest.mark.parametrize(("dtype", "terms"), [(torch.float16, 2304), (torch.bfloat16, 288)], ids=["fp16", "bf16"])
@pytest.mark.parametrize("name", ["triton_s", "triton_depthwise"])
def test_half_precision_is_added_up_in_fp32(many_splits, name, dtype, terms):
    """A sum of ones in half precision stops at 2048 or 256; sums on the way to a small result leave its range."""
    groups = 2 if name == "triton_depthwise" else 1
    problem = replace(conv((1, 2, 48, terms // 48), 2, (1, 1), groups=groups), dtype=dtype)
    ones = torch.ones(problem.input_shape, dtype=dtype)
    algorithm = BY_NAME[name]
    assert algorithm.grad_weight(problem, ones, ones).flatten().tolist() == [float(terms)] * (4 // groups)
    few = replace(problem, input_shape=(1, 2, 48, 2))
    loud = torch.full(few.input_shape, 200.0, dtype=dtype)
    signed = loud.clone()
    signed[:, :, 24:] *= -1
    assert algorithm.grad_weight(few, signed, loud).flatten().tolist() == [0.0] * (4 // groups)
    if groups == 1:
        deep = replace(conv((1, terms, 1, 1), 2, (1, 1)), dtype=dtype)
        x, weight = torch.ones(deep.input_shape, dtype=dtype), torch.ones(deep.weight_shape, dtype=dtype)
        assert algorithm.forward(deep, x, weight, None).flatten().tolist() == [float(terms)] * 2


def tiny_model():
    """A downsampling layer, a depthwise, a 1x1 and an upsampling one, as in YOLO."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2, 1),
        torch.nn.SiLU(),
        torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.Conv2d(8, 20, 1),
        torch.nn.ConvTranspose2d(20, 6, 2, 2),
    )


@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_a_module_trains_on_a_sick_vendor(channels_last):
    torch.manual_seed(0)
    model, x = tiny_model(), torch.randn(2, 3, 8, 10)

    def step(model, x):
        model.zero_grad()
        leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(leaf)
        y.square().mean().backward()
        return [y.detach(), leaf.grad, *(p.grad.clone() for p in model.parameters())]

    layout = torch.channels_last if channels_last else torch.contiguous_format
    doubles = tiny_model().double()
    doubles.load_state_dict(model.state_dict())
    exact = step(doubles, x.double())
    native = step(model, x)
    model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    with sick_vendor(), yolo_rocm.patched(("cpu",), "triton") as report:
        ours = step(model, x)
    assert set(report.engines()) == {"triton"}
    assert ours[0].is_contiguous(memory_format=layout)
    # Layer after layer: sums near zero of what the layers before have rounded differ by luck, 2.3 times on x86-64.
    assert_as_exact_as_native(ours, native, exact, times=4)


@pytest.mark.parametrize("name", [pytest.param("conv2d", marks=pytest.mark.deep), "conv_transpose2d"])
def test_torchs_own_samples(name):
    (op,) = (op for op in CONVOLUTIONS if op.name.endswith(f".{name}"))
    supported = 0
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
        if sample.input.dim() == 3:
            continue  # the one before it once more, without a batch: torch adds one before any engine sees it
        tensors, call = sample_call(op, sample)
        native = gradients(call, tensors)
        with sick_vendor(), yolo_rocm.patched(("cpu",), "triton"):
            ours = gradients(call, tensors)
        supported += 1
        assert_as_exact_as_native(ours, native, gradients(call, [t.double() for t in tensors]))
    assert supported >= 5
