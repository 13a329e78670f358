"""Blocks of Ultralytics in training: BatchNorm and activation as one where nobody can tell, else as they are."""

from __future__ import annotations

import copy
import functools
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from ultralytics.nn.modules import conv as blocks
from ultralytics.nn.modules.conv import Conv, ConvTranspose, DWConv

from yolo_rocm.hardware import Machine
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed
from yolo_rocm.session.session import Session, opening_lines
from yolo_rocm.ultralytics_hooks import probes
from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

from .one_block import FORWARD, block, image

BOTH = pytest.mark.parametrize("whole", [True, False], ids=["with convolution", "alone"])


class Scaled(nn.BatchNorm2d):
    """A BatchNorm of a user's own."""


class Twice(Conv):
    """A block of a user's own."""

    def forward(self, x):
        """Compute something else."""
        return self.act(self.bn(self.conv(x))) * 2


class Doubled(nn.Module):
    """A parametrisation."""

    def forward(self, x):
        """Double."""
        return x * 2


@BOTH
@pytest.mark.parametrize(
    ("kind", "act"), [(DWConv, False), (ConvTranspose, nn.LeakyReLU(0.2)), (Conv, nn.ReLU(inplace=True))]
)
def test_a_block_in_training_is_computed_as_one_and_gives_what_it_gave(kind, act, on, called, whole):
    ours, stock = block(kind, act=act), block(kind, act=act)
    inputs = [image().requires_grad_() for _ in range(2)]
    found = ours(inputs[0])
    assert called == []
    name = "_Block" if whole and kind is not ConvTranspose else "_NormAct"
    assert name in type(found.grad_fn).__name__
    forward = FORWARD if kind is not ConvTranspose else blocks.ConvTranspose.forward.__wrapped__
    wanted = forward(stock, inputs[1])
    assert called == [stock.bn]
    assert_same(ours, inputs[0], found, stock, inputs[1], wanted)


def assert_same(ours, x, found, stock, other, wanted) -> None:
    """Values, gradients and buffers are the same."""
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    grad = torch.randn(found.shape, generator=torch.Generator().manual_seed(4))
    found.backward(grad)
    wanted.backward(grad)
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-3, atol=1e-4)
    for (name, one), (_, two) in zip(ours.named_parameters(), stock.named_parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-4, msg=name)
    for (name, one), (_, two) in zip(ours.named_buffers(), stock.named_buffers(), strict=True):
        torch.testing.assert_close(one, two, msg=name)


def hooked(where: str, method: str):
    def change(module: nn.Module) -> None:
        function = (lambda m, x: None) if "pre" in method else (lambda m, x, y: None)
        getattr(getattr(module, where), method)(function)

    return change


def changed(**attributes):
    def change(module: nn.Module) -> None:
        for path, value in attributes.items():
            owner, _, name = path.partition("__")
            setattr(getattr(module, owner) if name else module, name or owner, copy.deepcopy(value))

    return change


def own_forward(module: nn.Module) -> None:
    module.bn.forward = lambda x: type(module.bn).forward(module.bn, x)


def frozen(module: nn.Module) -> None:
    module.bn.eval()


EXCEPTIONS = {
    "eval mode": lambda module: module.eval(),
    "frozen BatchNorm": frozen,
    "BatchNorm of a user": changed(bn=Scaled(8)),
    "cumulative average": changed(bn__momentum=None),
    "another activation": changed(act=nn.GELU()),
    "forward of its own": own_forward,
    "parametrised": lambda module: parametrize.register_parametrization(module.bn, "weight", Doubled()),
    "hook of BatchNorm": hooked("bn", "register_forward_hook"),
    "hook of the activation": hooked("act", "register_full_backward_hook"),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_the_ordinary_way_is_taken(name, on, called):
    module, stock = block(act=nn.SiLU()), block(act=nn.SiLU())
    module(image())
    assert called == []  # whatever is remembered of the module must not count any more
    FORWARD(stock, image())
    called.clear()
    for each in (module, stock):
        EXCEPTIONS[name](each)
    found = module(image())
    assert [type(each) for each in called] == [type(module.bn)]
    torch.testing.assert_close(found, FORWARD(stock, image()), rtol=1e-4, atol=1e-5)
    for (buffer, one), (_, other) in zip(module.named_buffers(), stock.named_buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=buffer)


OF_THE_CONVOLUTION = {
    "convolution of a user": changed(conv=type("Mine", (nn.Conv2d,), {})(4, 8, 1)),
    "padding of another kind": changed(conv=nn.Conv2d(4, 8, 3, padding=1, padding_mode="circular")),
    "forward of its own": lambda module: setattr(module.conv, "forward", functools.partial(_twice, module.conv)),
    "parametrised": lambda module: parametrize.register_parametrization(module.conv, "weight", Doubled()),
    "hook": hooked("conv", "register_forward_pre_hook"),
}


def _twice(conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    return nn.Conv2d.forward(conv, x) * 2


@pytest.mark.parametrize("name", OF_THE_CONVOLUTION)
def test_the_convolution_is_called_and_the_rest_is_one(name, on, called, convolved):
    ours, stock = modules = [block(act=nn.SiLU()), block(act=nn.SiLU())]
    for module, forward in zip(modules, (type(ours).forward, FORWARD), strict=True):
        forward(module, image())
        OF_THE_CONVOLUTION[name](module)
    called.clear()
    convolved.clear()
    x, other = (image().requires_grad_() for _ in range(2))
    found = ours(x)
    assert [each is ours.conv for each in convolved] == [True]
    assert called == []
    assert_same(ours, x, found, stock, other, FORWARD(stock, other))


@BOTH
def test_a_pruned_block_that_is_made_permanent_is_one_again(on, called, convolved, whole):
    module = block()
    for layer in (module.conv, module.bn):
        prune.l1_unstructured(layer, "weight", 0.5)
    module(image())
    assert (len(called), len(convolved)) == (1, 1)
    for layer in (module.conv, module.bn):
        prune.remove(layer, "weight")
    found = module(image())
    assert (len(called), len(convolved)) == (1, 1 if whole else 2)
    assert int((module.bn.weight == 0).sum()) == 4
    torch.testing.assert_close(found, FORWARD(module, image()), rtol=1e-4, atol=1e-5)


def test_a_block_of_a_user_is_the_users(on, called):
    module = block(Twice)
    torch.testing.assert_close(module(image()), FORWARD(block(), image()) * 2)
    assert len(called) == 2


def test_a_convolution_that_is_an_attribute_and_no_child(on, called):
    module, x = block(), image()
    conv = module.conv
    del module.conv
    object.__setattr__(module, "conv", conv)
    assert torch.allclose(module(x), module.act(module.bn(conv(x))), atol=1e-5)


def test_modules_stay_plain(on):
    module = block()
    before = set(vars(module)), set(vars(module.bn)), set(vars(module.act))
    module(image().requires_grad_()).sum().backward()
    assert (set(vars(module)), set(vars(module.bn)), set(vars(module.act))) == before
    assert b"yolo_rocm" not in pickle.dumps(module)
    file = io.BytesIO()
    torch.save(copy.deepcopy(module), file)
    assert b"yolo_rocm" not in file.getvalue()


def test_the_classes_are_as_they_were_after_an_error():
    with pytest.raises(KeyboardInterrupt), fused_blocks():
        assert Conv.forward is not FORWARD
        raise KeyboardInterrupt
    assert Conv.forward is FORWARD
    assert "forward" not in vars(DWConv)


def test_a_forward_that_others_have_replaced_is_theirs(monkeypatch, called):
    @functools.wraps(FORWARD)
    def theirs(self, x):
        return FORWARD(self, x) + 1

    with monkeypatch.context() as patched:
        patched.setattr(blocks.Conv, "forward", theirs)
        with installed(NormPatch(("cpu",), NormPlanner("gemm", remember=False))), fused_blocks():
            torch.testing.assert_close(block()(image()), FORWARD(block(), image()) + 1)
    assert len(called) == 2


def test_an_ultralytics_that_computes_something_else_is_left_alone_in_one_line(monkeypatch):
    def other(self, x):
        return self.act(self.bn(self.conv(x))) + x

    with monkeypatch.context() as patched:
        patched.setattr(blocks.Conv, "forward", other)
        probes.missing.cache_clear()
        (line,) = [
            line for line in opening_lines(Session("cpu", None).settings, Machine()) if probes.FUSED_BLOCKS in line
        ]
        assert "left off with this Ultralytics: ultralytics.nn.modules.conv.Conv.forward has no" in line
        with fused_blocks():
            assert Conv.forward is other
    probes.missing.cache_clear()
    assert [
        line for line in opening_lines(Session("cpu", None).settings, Machine()) if probes.FUSED_BLOCKS in line
    ] == []
