"""BatchNorm and activation as one function: values, statistics and gradients of torch's own, and less kept."""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext
from itertools import product

import pytest
import torch
from torch import nn

from yolo_rocm.norm.fused import norm_act
from yolo_rocm.norm.fusible import fusible
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed

from ..tables import each_row

ACTIVATIONS = {
    "silu": nn.SiLU(),
    "silu in place": nn.SiLU(inplace=True),
    "relu": nn.ReLU(inplace=True),
    "leaky_relu": nn.LeakyReLU(0.1),
    "identity": nn.Identity(),
}
# Against fp64: the share of the largest value that an error may have.
EXACT = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}


@contextmanager
def served(engine: str = "gemm", devices: tuple[str, ...] = ("cpu",)):
    patch = NormPatch(devices, NormPlanner(engine, remember=False))
    with installed(patch):
        yield patch


def layer(channels: int = 6, dtype: torch.dtype = torch.float32, **options) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, **{"eps": 1e-3, "momentum": 0.03, **options})
    generator = torch.Generator().manual_seed(1)
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        if tensor is not None:
            tensor.data.copy_(torch.randn(channels, generator=generator))
    return norm.to(dtype)


def sample(*shape: int, dtype: torch.dtype = torch.float32, layout=torch.contiguous_format) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 3
    return x.to(dtype).contiguous(memory_format=layout)


def stepped(x: torch.Tensor, norm: nn.BatchNorm2d, act: nn.Module, fused: bool) -> dict[str, torch.Tensor | None]:
    """Return all that a training step computes and changes."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    if fused:
        assert fusible(norm, act)
        y = norm_act(x, norm, act)
        assert y is not None
    else:
        y = act(norm(x))
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(y.dtype)
    y.backward(grad)
    params = {name: parameter.grad for name, parameter in norm.named_parameters()}
    return {"y": y.detach(), "x": x.grad, **params, **dict(norm.named_buffers())}


def compare(found, wanted, share: float) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        error = (found[name].double() - value.double()).abs().max()
        assert error <= share * max(1.0, float(value.double().abs().max())), (name, float(error))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_step_is_that_of_torch(name):
    for dtype, layout in product(EXACT, (torch.contiguous_format, torch.channels_last)):
        x = sample(3, 6, 5, 7, dtype=dtype, layout=layout)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        norm = layer(dtype=wide)
        exact = stepped(x.double(), copy.deepcopy(norm).double(), ACTIVATIONS[name], fused=False)
        with served():
            ours = stepped(x, norm, ACTIVATIONS[name], fused=True)
        assert (ours["y"].dtype, ours["x"].dtype, ours["weight"].dtype) == (dtype, dtype, wide)
        for tensor in (ours["y"], ours["x"]):
            assert tensor.is_contiguous(memory_format=layout)
        compare(ours, exact, EXACT[dtype])
        assert int(norm.num_batches_tracked) == 1


@each_row("options", [{"affine": False}, {"momentum": 0.0}, {"momentum": 1.0}, {"eps": 0.5}], ids=str)
def test_each_setting_of_a_layer_counts(options):
    norm = layer(**options)
    exact = stepped(sample(4, 6, 3, 3).double(), copy.deepcopy(norm).double(), nn.SiLU(), fused=False)
    with served():
        compare(stepped(sample(4, 6, 3, 3), norm, nn.SiLU(), fused=True), exact, EXACT[torch.float32])


def test_statistics_go_on_from_step_to_step_and_batches_count_by_one():
    """With gradients or without them."""
    ours, stock = layer(), layer()
    with served():
        for step in range(1, 4):
            x = sample(2, 6, 4, 4) * step
            with torch.no_grad() if step == 2 else nullcontext():
                norm_act(x, ours, nn.SiLU())
            stock(x)
            assert int(ours.num_batches_tracked) == int(stock.num_batches_tracked) == step
            compare(dict(ours.named_buffers()), dict(stock.named_buffers()), 1e-5)
        ours.num_batches_tracked = None  # as checkpoints of old torch have it
        assert norm_act(sample(2, 6, 4, 4), ours, nn.SiLU()) is not None
        assert ours.num_batches_tracked is None


def test_a_repeated_call_asks_for_no_route(monkeypatch):
    asked = []
    route = NormPatch.route
    monkeypatch.setattr(NormPatch, "route", lambda self, problem: asked.append(problem) or route(self, problem))
    norm, x = layer(), sample(2, 6, 4, 4)
    with served() as patch:
        for _ in range(3):
            norm_act(x, norm, nn.SiLU())
        assert len(asked) == 1
        norm_act(x, norm, nn.ReLU())
        norm_act(x[:1], norm, nn.SiLU())
        assert [(p.activation, p.shape[0]) for p in asked] == [("silu", 2), ("relu", 2), ("silu", 1)]
        patch.planner.generation += 1  # something was measured
        norm_act(x, norm, nn.SiLU())
        assert len(asked) == 4


def refused(x, norm, act=None):
    with served():
        return norm_act(x, norm, act or nn.SiLU()) is None


def test_what_torch_refuses_or_is_unusual_is_left_to_it():
    assert refused(sample(1, 6, 1, 1), layer())  # one value in a channel
    assert refused(sample(2, 5, 4, 4), layer())
    assert refused(sample(6, 4, 4), layer())
    assert refused(sample(2, 6, 4, 4), layer(dtype=torch.float64))
    assert refused(sample(2, 6, 4, 4, dtype=torch.bfloat16), layer(dtype=torch.bfloat16))
    assert refused(torch.zeros(2, 6, 4, 4, device="meta"), layer())
    assert refused(nn.Parameter(sample(2, 6, 4, 4)), layer())
    apart = layer()
    apart.bias = None
    assert refused(sample(2, 6, 4, 4), apart)
    apart = layer()
    weight = apart.weight.detach()
    del apart.weight
    apart.weight = weight
    assert refused(sample(2, 6, 4, 4), apart)
    assert not refused(sample(2, 6, 4, 4), layer())


@each_row("odd", [{"momentum": None}, {"track_running_stats": False}, {"eps": 0.0}], ids=str)
def test_layers_that_compute_something_else_are_not_fused(odd):
    assert fusible(layer(), nn.SiLU())
    assert not fusible(layer(**odd), nn.SiLU())
    assert not fusible(layer().eval(), nn.SiLU())


ODD_TENSORS = {
    "of another size": lambda old: torch.ones(3, dtype=old.dtype),
    "of one value": lambda old: torch.ones(1, dtype=old.dtype),
    "with gaps": lambda old: torch.ones(12, dtype=old.dtype)[::2],
    "of one value for all": lambda old: torch.ones(1, dtype=old.dtype).expand(6),
    "of two dimensions": lambda old: torch.ones(6, 1, dtype=old.dtype),
    "in fp64": lambda old: old.double(),
    "elsewhere": lambda old: old.to("meta"),
}


@each_row(("name", "odd"), product(["weight", "bias", "running_mean", "running_var"], ODD_TENSORS), ids=str)
def test_odd_parameters_are_left_to_torch_also_after_a_good_call(name, odd):
    """As a tool leaves them that takes channels away. A kernel would read what lies behind them, and write there."""
    norm, x = layer(), sample(2, 6, 4, 4)
    made = ODD_TENSORS[odd](getattr(norm, name).data)
    with served():
        assert norm_act(x, norm, nn.SiLU()) is not None
        setattr(norm, name, nn.Parameter(made) if name in norm._parameters else made)
        assert norm_act(x, norm, nn.SiLU()) is None
        assert norm_act(x, layer(), nn.SiLU()) is not None


ODD_COUNTS = [torch.zeros(2, dtype=torch.int64), torch.zeros(()), torch.zeros((), dtype=torch.int64, device="meta")]


@each_row("batches", ODD_COUNTS, ids=["two", "fp32", "elsewhere"])
def test_an_odd_count_of_batches_is_left_to_torch(batches):
    norm, x = layer(), sample(2, 6, 4, 4)
    with served():
        assert norm_act(x, norm, nn.SiLU()) is not None
        norm.num_batches_tracked = batches
        assert norm_act(x, norm, nn.SiLU()) is None
        norm.num_batches_tracked = torch.zeros(1, dtype=torch.int64)
        assert norm_act(x, norm, nn.SiLU()) is not None
    assert norm.num_batches_tracked.tolist() == [1]


def test_without_a_patch_for_the_device_nothing_is_computed():
    assert norm_act(sample(2, 6, 4, 4), layer(), nn.SiLU()) is None
    with served(devices=("cuda",)):
        assert norm_act(sample(2, 6, 4, 4), layer(), nn.SiLU()) is None
