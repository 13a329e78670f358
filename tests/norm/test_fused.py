"""BatchNorm and activation as one function: values, statistics and gradients of torch's own, and less kept."""

from __future__ import annotations

import copy
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from yolo_rocm.norm import recipes
from yolo_rocm.norm.fused import norm_act
from yolo_rocm.norm.fusible import fusible
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.pytorch import Torch
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


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_step_is_that_of_torch(name, dtype, layout):
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


@pytest.mark.parametrize("options", [{"affine": False}, {"momentum": 0.0}, {"momentum": 1.0}, {"eps": 0.5}], ids=str)
def test_each_setting_of_a_layer_counts(options):
    norm = layer(**options)
    exact = stepped(sample(4, 6, 3, 3).double(), copy.deepcopy(norm).double(), nn.SiLU(), fused=False)
    with served():
        compare(stepped(sample(4, 6, 3, 3), norm, nn.SiLU(), fused=True), exact, EXACT[torch.float32])


def test_statistics_go_on_from_step_to_step_and_batches_count_by_one():
    ours, stock = layer(), layer()
    with served():
        for step in range(1, 4):
            x = sample(2, 6, 4, 4) * step
            norm_act(x, ours, nn.SiLU())
            stock(x)
            assert int(ours.num_batches_tracked) == int(stock.num_batches_tracked) == step
            compare(dict(ours.named_buffers()), dict(stock.named_buffers()), 1e-5)


def test_a_layer_that_counts_no_batches():
    norm = layer()
    norm.num_batches_tracked = None  # as checkpoints of old torch have it
    with served():
        assert norm_act(sample(2, 6, 4, 4), norm, nn.SiLU()) is not None
    assert norm.num_batches_tracked is None


def test_without_gradients_the_statistics_are_still_updated():
    norm, x = layer(), sample(2, 6, 4, 4)
    before = norm.running_mean.clone()
    with served(), torch.no_grad():
        y = norm_act(x, norm, nn.SiLU())
    assert not y.requires_grad
    assert not torch.equal(norm.running_mean, before)
    assert int(norm.num_batches_tracked) == 1


@each_row("frozen", [("weight",), ("bias",), ("weight", "bias"), ("x",), ("x", "weight")], ids=str)
def test_only_wanted_gradients_are_computed(frozen):
    norm, x = layer(), sample(2, 6, 4, 4)
    whole = stepped(x, layer(), nn.SiLU(), fused=False)
    tensors = {"weight": norm.weight, "bias": norm.bias, "x": x}
    for name, tensor in tensors.items():
        tensor.requires_grad_(name not in frozen)
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).float()
    with served():
        norm_act(x, norm, nn.SiLU()).backward(grad)
    for name, tensor in tensors.items():
        if name in frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, whole[name], rtol=1e-4, atol=1e-5)


def test_an_input_with_gaps_and_a_gradient_that_is_one_number():
    whole = sample(2, 12, 4, 8).requires_grad_()
    with served():
        norm_act(whole[:, ::2, :, 1::2], layer(), nn.SiLU()).sum().backward()
    ours, whole.grad = whole.grad, None
    nn.SiLU()(layer()(whole[:, ::2, :, 1::2])).sum().backward()
    torch.testing.assert_close(ours, whole.grad, rtol=1e-4, atol=1e-5)


def test_the_sign_of_a_gradient_is_applied_before_an_algorithm_reads_it(monkeypatch):
    """Kernels read what is in memory."""
    signs, backward = [], Torch.backward

    def noted(self, problem, grad, *given):
        signs.append(grad.is_neg())
        return backward(self, problem, grad, *given)

    monkeypatch.setattr(Torch, "backward", noted)
    with served():
        y = norm_act(sample(2, 6, 4, 4).requires_grad_(), layer(), nn.SiLU())
        signs.clear()  # planning has compared it
        y.backward(torch._neg_view(torch.ones_like(y)))
    assert signs == [False]


def test_under_autocast_bits_are_those_of_a_call_without_it():
    x, norm = sample(2, 6, 4, 4, dtype=torch.bfloat16), layer()
    with served():
        plain = norm_act(x, copy.deepcopy(norm), nn.SiLU())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = norm_act(x, norm, nn.SiLU())
    assert found.dtype == torch.bfloat16
    assert torch.equal(plain, found)


@pytest.mark.parametrize("name", ["silu", "leaky_relu", "identity"])
def test_gradients_have_gradients(name):
    norm = layer(3, torch.float64)
    inputs = [sample(2, 3, 2, 3, dtype=torch.float64), norm.weight.detach().clone(), norm.bias.detach().clone()]

    def function(x, weight, bias):
        clone = layer(3, torch.float64)
        clone._parameters.update(weight=weight, bias=bias)
        return norm_act(x, clone, ACTIVATIONS[name])

    with served():
        assert torch.autograd.gradcheck(function, [tensor.requires_grad_() for tensor in inputs])
        assert torch.autograd.gradgradcheck(function, inputs)


def kept(run) -> dict[int, int]:
    """Return the bytes of each storage that is kept for backward while `run` computes."""
    found: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.storage() if not hasattr(tensor, "untyped_storage") else tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    assert result.requires_grad
    return found


def test_nothing_but_input_parameters_and_statistics_is_kept():
    norm, x = layer(), sample(2, 6, 16, 16).requires_grad_()
    with served():
        found = kept(lambda: norm_act(x, norm, nn.SiLU()))
        y = norm_act(x, norm, nn.SiLU())
    assert set(found) > {x.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr()}
    assert len(found) == 3 + 2
    assert [tuple(each.shape) for each in y.grad_fn.statistics] == [(6,), (6,)]
    stock = kept(lambda: nn.SiLU()(norm(x)))
    assert sum(stock.values()) > 1.9 * sum(found.values())


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


def test_the_recipe_of_an_activation_gives_its_bits(monkeypatch):
    offered = []
    monkeypatch.setattr(recipes, "wanted", lambda tensor: True)
    monkeypatch.setattr(recipes, "offer", lambda *given: offered.append(given))
    norm, x = layer(), sample(2, 6, 4, 4, dtype=torch.bfloat16, layout=torch.channels_last)
    with served():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = norm_act(x.requires_grad_(), norm, nn.SiLU())
        ((found, recompute, sources),) = offered
        again = recompute()
        with torch.no_grad():
            norm_act(x, norm, nn.SiLU())
    assert found is y
    assert sources[0].data_ptr() == x.data_ptr()
    assert not sources[0].requires_grad
    assert torch.equal(again, y)
    assert again.stride() == y.stride()
    assert not again.requires_grad
    assert len(offered) == 1  # without gradients nothing is kept


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


@pytest.mark.parametrize("odd", [{"momentum": None}, {"track_running_stats": False}, {"eps": 0.0}], ids=str)
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


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean", "running_var"])
@pytest.mark.parametrize("odd", ODD_TENSORS)
def test_odd_parameters_are_left_to_torch_also_after_a_good_call(name, odd):
    """As a tool leaves them that takes channels away. A kernel would read what lies behind them, and write there."""
    norm, x = layer(), sample(2, 6, 4, 4)
    made = ODD_TENSORS[odd](getattr(norm, name).data)
    with served():
        assert norm_act(x, norm, nn.SiLU()) is not None
        setattr(norm, name, nn.Parameter(made) if name in norm._parameters else made)
        assert norm_act(x, norm, nn.SiLU()) is None
        assert norm_act(x, layer(), nn.SiLU()) is not None


def test_a_layer_from_which_channels_were_taken_may_say_that_it_has_more():
    """Which torch does not read."""
    taken = layer(12)
    for name in ("weight", "bias"):
        setattr(taken, name, nn.Parameter(getattr(taken, name).data[:6]))
    taken.running_mean, taken.running_var = taken.running_mean[:6], taken.running_var[:6]
    assert not refused(sample(2, 6, 4, 4), taken)


def test_one_value_has_no_gaps_whatever_its_stride():
    odd = layer(1)
    odd.weight.data = torch.ones(8)[::8]
    assert not refused(sample(2, 1, 4, 4), odd)


ODD_COUNTS = [torch.zeros(2, dtype=torch.int64), torch.zeros(()), torch.zeros((), dtype=torch.int64, device="meta")]


@pytest.mark.parametrize("batches", ODD_COUNTS, ids=["two", "fp32", "elsewhere"])
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
