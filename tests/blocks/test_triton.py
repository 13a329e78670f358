"""Blocks whose passes are kernels of ours, in Triton's interpreter: under autocast nothing is switched off for them."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.engines.triton.available import missing_reason
from yolo_rocm.norm import lean
from yolo_rocm.norm.keeping import Activation

from ..interpreted import interpreter
from .steps import by_one, by_two, layers, same, sample, served, stepped
from .test_lean_block import chained

SMALL = (2, 4, 4, 5)
pytestmark = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


def test_a_step_has_the_bits_of_the_two_functions():
    x, three = sample(*SMALL), layers(padding=1)
    with interpreter(), served("triton") as (patch, norms):
        same(stepped(by_one, x, three, amp=True), stepped(by_two, x, three, amp=True))
        assert {entry.plan.engine for report in (patch.report, norms.report) for entry in report.served.values()} == {
            "triton"
        }
        assert [known.is_cast for _, _, known in norms.cache("conv_norm_act").values()] == [False]


def test_lean_memory_has_the_bits_of_full_memory(monkeypatch):
    """Activations are computed again by the kernels that computed them first."""
    again, made = Activation._make, []
    monkeypatch.setattr(Activation, "_make", lambda self: made.append(self) or again(self))
    with interpreter(), served("triton") as (_, norms), lean.installed():
        wanted, _ = chained(by_one, on=False, amp=True, shape=SMALL)
        assert not made
        found, _ = chained(by_one, on=True, amp=True, shape=SMALL)
        assert {entry.plan.engine for entry in norms.report.served.values()} == {"triton"}
    assert made
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def repacked(tensor):
    """As `torch.autograd.graph.save_on_cpu(pin_memory=True)` does."""
    return torch.empty(tensor.size(), dtype=tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("run", [by_one, by_two])
def test_hooks_may_return_another_layout(run):
    x, three = sample(*SMALL, layout=torch.channels_last), layers(padding=1)
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
            x = sample(*SMALL).requires_grad_()
            y = run(x, three)
            grad = torch.linspace(-1, 1, y.numel()).view(y.shape)
            y.backward(torch._neg_view(grad) if negative else -grad)
            found.append(x.grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("run", [by_one, by_two], ids=["block", "two functions"])
def test_batches_are_counted_for_whoever_asks_torch_too(run):
    """By which those who keep something made of the statistics see that it is stale."""
    x, three = sample(*SMALL), layers()
    with interpreter(), served("triton"), torch.no_grad():
        for count in (1, 2):
            run(x, three)
            assert int(three[1].num_batches_tracked) == count
            assert three[1].num_batches_tracked._version >= count
