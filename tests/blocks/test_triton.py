"""Blocks whose passes are kernels of ours, in Triton's interpreter: under autocast nothing is switched off for them."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.blocks.recomputed import RecomputedBlock
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.names import PASSES
from yolo_rocm.conv.patch import Route
from yolo_rocm.conv.problem import ConvProblem
from yolo_rocm.conv.report import ConvStats
from yolo_rocm.engines.planner import PassChoice, Plan
from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.norm import lean

from ..interpreted import interpreter
from .steps import by_one, by_two, layers, same, sample, served, stepped
from .test_lean_block import chained

pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_a_step_has_the_bits_of_the_two_functions(amp):
    x, three = sample(), layers(padding=1)
    with interpreter(), served("triton") as (patch, norms):
        same(stepped(by_one, x, three, amp), stepped(by_two, x, three, amp))
        assert {entry.plan.engine for report in (patch.report, norms.report) for entry in report.served.values()} == {
            "triton"
        }
        assert [known.is_cast for known in norms.cache("conv_norm_act").values() if hasattr(known, "is_cast")] == [
            False
        ]


@pytest.mark.parametrize("amp", [pytest.param(False, marks=pytest.mark.deep), True], ids=["fp32", "autocast"])
def test_lean_memory_has_the_bits_of_full_memory(amp, monkeypatch):
    """Activations are computed again by the kernels that computed them first."""
    again, made = RecomputedBlock._made_again, []
    monkeypatch.setattr(RecomputedBlock, "_made_again", lambda self: made.append(self) or again(self))
    with interpreter(), served("triton") as (_, norms), lean.installed():
        wanted, _ = chained(by_one, on=False, amp=amp)
        assert not made
        found, _ = chained(by_one, on=True, amp=amp)
        assert {entry.plan.engine for entry in norms.report.served.values()} == {"triton"}
    assert made
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_weight_is_converted_to_the_layout_that_is_read():
    """Otherwise each pass copies it once more."""
    x, three = sample(2, 4, 7, 8), layers(padding=1)
    with interpreter(), served("triton") as (_, norms), torch.autocast("cpu", dtype=torch.bfloat16):
        y = conv_norm_act(x, *three)
        (known,) = norms.cache("conv_norm_act").values()
        weight = y.grad_fn.saved_tensors[0]
        assert weight.dtype == torch.bfloat16
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(weight, three[0].weight.bfloat16())
        assert not known.conv.problem.channels_last  # its gradient is laid out as the layer has it
        y.backward(torch.ones_like(y))
    assert three[0].weight.grad.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["triton_s", "triton_s_turned", "triton_depthwise"])
def test_a_gradient_in_fp32_has_the_values_of_half_precision(name, dtype):
    groups = 4 if name == "triton_depthwise" else 1
    problem = ConvProblem((2, 4, 7, 8), (4, 4 // groups, 3, 3), *[(1, 1)] * 3, (0, 0), groups, False, dtype, "cpu")
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in (problem.input_shape, problem.weight_shape, problem.output_shape)
    )
    with interpreter():
        passes = BY_NAME[name].bound(problem)
        for _ in range(2):
            _, rounded = passes.backward(grad, x, weight, (False, True))
            _, wide = passes.backward(grad, x, weight, (False, True, True))
            assert (rounded.dtype, wide.dtype) == (dtype, torch.float32)
            assert torch.equal(wide, rounded.float())
            assert wide.stride() == rounded.stride()


def test_where_two_passes_read_two_layouts_a_weight_stays_as_it_is():
    problem = ConvProblem((2, 4, 7, 8), (6, 4, 3, 3), *[(1, 1)] * 3, (0, 0), 1, False, torch.bfloat16, "cpu")
    for names, layout in {
        ("triton_s", "triton_s_turned"): torch.channels_last,
        ("triton_s", "columns"): torch.preserve_format,
        ("columns", "columns"): torch.preserve_format,
    }.items():
        algorithms = dict(zip(PASSES, (*names, "columns"), strict=True))
        plan = Plan({which: PassChoice(BY_NAME[name], "") for which, name in algorithms.items()})
        assert Route(problem, plan, ConvStats(problem, plan), 2**20).weight_layout == layout


def test_with_other_engines_autocast_is_switched_off():
    with served("gemm") as (_, norms):
        conv_norm_act(sample(), *layers())
        assert [known.is_cast for known in norms.cache("conv_norm_act").values()] == [True]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = conv_norm_act(sample(), *layers())
    assert found.dtype == torch.bfloat16


def repacked(tensor):
    """As `torch.autograd.graph.save_on_cpu(pin_memory=True)` does."""
    return torch.empty(tensor.size(), dtype=tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("run", [by_one, by_two])
def test_hooks_may_return_another_layout(run):
    x, three = sample(layout=torch.channels_last), layers(padding=1)
    with interpreter(), served("triton"):
        wanted = stepped(run, x, three)
        hooks = torch.autograd.graph.saved_tensors_hooks(repacked, lambda kept: kept)

        def hooked(x, three):
            with hooks:
                return run(x, three)

        found = stepped(hooked, x, three)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("run", [by_one, by_two])
def test_a_gradient_whose_sign_is_still_to_be_applied(run):
    three, found = layers(padding=1), []
    with interpreter(), served("triton"):
        for negative in (False, True):
            x = sample().requires_grad_()
            y = run(x, three)
            grad = torch.linspace(-1, 1, y.numel()).view(y.shape)
            y.backward(torch._neg_view(grad) if negative else -grad)
            found.append(x.grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("run", [by_one, by_two], ids=["block", "two functions"])
def test_batches_are_counted_for_whoever_asks_torch_too(run):
    """By which those who keep something made of the statistics see that it is stale."""
    x, three = sample(), layers()
    with interpreter(), served("triton"), torch.no_grad():
        for count in (1, 2):
            run(x, three)
            assert int(three[1].num_batches_tracked) == count
            assert three[1].num_batches_tracked._version >= count
