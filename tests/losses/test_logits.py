"""Losses of logits against torch's own: in Triton's interpreter, and on a GPU."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.measure import relative_error
from yolo_rocm.losses import logits

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ORIGINAL = functional.binary_cross_entropy_with_logits
OWN = functools.partial(ORIGINAL, reduction="none")


@pytest.fixture(autouse=True)
def begin_anew():
    with STATE.replaced():
        yield
    assert functional.binary_cross_entropy_with_logits is ORIGINAL


@pytest.fixture
def launched(monkeypatch):
    """The kernels that are launched, each with how many values it computes."""
    found = []
    real = logits._launch

    def noted(kernel, sizes, tensors):
        found.append((kernel, sizes[0]))
        real(kernel, sizes, tensors)

    monkeypatch.setattr(logits, "_launch", noted)
    return found


def made(device, shape=(3, 41, 7), dtype=torch.float32, target=None, sharp=4.0):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator) * sharp
    targets = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.3)
    return x.to(device, dtype), targets.to(device, target or dtype)


def with_gradient(function, x, targets, by=None):
    leaf = x.detach().clone().requires_grad_()
    found = function(leaf, targets)
    (grad,) = torch.autograd.grad(found.sum(), leaf) if by is None else torch.autograd.grad(found, leaf, by)
    return found.detach(), grad


def exact(x, targets, by=None):
    return with_gradient(OWN, x.double(), targets.double(), None if by is None else by.double())


@pytest.mark.parametrize("shape", [(1,), (2, 1024), (2, 1500)], ids=str)
def test_losses_and_gradients_are_those_of_fp64(device, shape):
    x, targets = made(device, shape)
    found, grad = with_gradient(logits.logit_losses, x, targets)
    expected, of_these = exact(x, targets)
    # Also of small ones, where nothing is cancelled; an exponential is as inexact as its exponent.
    rounding = 2e-7 * (expected * (1 + x.abs()) + x.abs() * (targets != 0))
    assert bool(((found - expected).abs() <= rounding).all())
    assert float((grad - of_these).abs().max()) < 2e-7


def strided(tensor):
    """Return the same values, laid out differently."""
    return tensor.transpose(0, 2).contiguous().transpose(0, 2)


def test_a_gradient_for_each_loss(device):
    x, targets = made(device)
    each = torch.rand(x.shape, device=device)
    for by in (strided(each), each[:1, :1].expand_as(x), torch._neg_view(each)):
        _, grad = with_gradient(logits.logit_losses, x, targets, by)
        assert relative_error(grad, exact(x, targets, by)[1]) < 1e-6


@pytest.mark.parametrize(
    ("dtype", "target"),
    [(torch.float32, torch.float16), (torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)],
    ids=str,
)
def test_half_precision_is_computed_in_fp32(device, dtype, target):
    x, targets = made(device, dtype=dtype, target=target)
    found, grad = with_gradient(logits.logit_losses, x, targets)
    expected, of_these = exact(x, targets)
    assert (found.dtype, grad.dtype) == (torch.float32, dtype)
    assert relative_error(found, expected) < 1e-6
    assert relative_error(grad, of_these) < {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]


def test_extremes_are_those_of_torch(device):
    large = float("inf")
    x = torch.tensor([0.0, -0.0, 90.0, -90.0, 1e30, -1e30, large, -large, float("nan"), large], device=device)
    targets = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 1.0], device=device)
    found, grad = with_gradient(logits.logit_losses, x, targets)
    own, of_these = with_gradient(OWN, x, targets)
    torch.testing.assert_close(found, own, equal_nan=True)
    torch.testing.assert_close(grad, of_these, equal_nan=True)


def test_only_what_is_given_is_kept(device):
    x, targets = made(device, dtype=torch.float16)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        logits.logit_losses(x.requires_grad_(), targets)
    assert [each.data_ptr() for each in kept] == [x.data_ptr(), targets.data_ptr()]


def test_gradients_of_gradients_are_those_of_torch(device):
    x, targets = made(device, (2, 5))

    def twice(function):
        leaf = x.detach().clone().requires_grad_()
        (grad,) = torch.autograd.grad(function(leaf, targets).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), leaf)[0]

    expected = twice(OWN)
    assert relative_error(twice(logits.logit_losses), expected) < 1e-5


@pytest.mark.parametrize("amp", [False, True])
def test_torchs_function_is_served_from_the_first_call_on(device, launched, amp):
    """The numbers of a training do not depend on whether an earlier one of the process has proven the kernels."""
    x, targets = made(device, dtype=torch.bfloat16 if amp else torch.float32)
    criterion = nn.BCEWithLogitsLoss(reduction="none")
    with logits.fused_logit_losses(), torch.autocast(device, torch.bfloat16, enabled=amp):
        first = with_gradient(criterion, x, targets)
        compared, used = ([("logit_losses", n), ("logit_gradients", n)] for n in (logits._COMPARED, x.numel()))
        assert launched == [*compared, compared[1], *used]  # with one gradient for all and one for each
        launched.clear()
        second = with_gradient(criterion, x, targets)
        assert len(launched) == 2
        own = with_gradient(OWN, x, targets)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert [each.dtype for each in first] == [each.dtype for each in own]
    assert max(relative_error(*pair) for pair in zip(first, own, strict=True)) < (1e-2 if amp else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_images_that_show_nothing_do_not_decide(device, launched, events, dtype):
    """Losses of such are off by more than kernels may be, as torch computes them; nor do those that are not finite."""
    x = torch.linspace(-12.0, -11.0, 41 * 7, device=device).to(dtype)
    targets = torch.zeros_like(x)
    assert relative_error(OWN(x.float(), targets.float()), exact(x, targets)[0]) > logits._ALLOWED[dtype][0]
    with logits.fused_logit_losses(), torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
        functional.binary_cross_entropy_with_logits(x * float("nan"), targets, reduction="none")
        found = functional.binary_cross_entropy_with_logits(x, targets, reduction="none")
    assert launched[-1] == ("logit_losses", x.numel())
    assert relative_error(found, exact(x, targets)[0]) < logits._ALLOWED[dtype][0]
    assert not events.ids


# A network begins with logits of about -11; below -17, 1 + exp(logit) is 1. With one gradient for all losses another
# kernel is launched than with one for each.
WRONG = {
    "a little": (torch.float32, "logit_losses", None, lambda x, target: 1.0001),
    "gradients by one": (torch.float32, "logit_gradients", True, lambda x, target: 1.0001),
    "gradients by each": (torch.float32, "logit_gradients", False, lambda x, target: 1.0001),
    **{
        f"{kernel} of {dtype} below {below}": (dtype, kernel, None, lambda x, target, b=below: (x > b) | (target > 0))
        for kernel, dtype, below in (
            ("logit_losses", torch.float32, -17.0),
            ("logit_losses", torch.bfloat16, -11.0),
            ("logit_gradients", torch.float16, -11.0),
            ("logit_gradients", torch.float32, -17.0),
        )
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_kernels_that_are_wrong_are_not_used(device, monkeypatch, events, name):
    dtype, kernel, one, factor = WRONG[name]
    x, targets = made(device, dtype=dtype)
    launch = logits._launch

    def wrong(name, sizes, tensors):
        launch(name, sizes, tensors)
        if name == kernel and one in (None, sizes[-1]):
            tensors[-1].mul_(factor(tensors[-3].float(), tensors[-2].float()))

    monkeypatch.setattr(logits, "_launch", wrong)
    with torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
        own = with_gradient(OWN, x, targets)
        with logits.fused_logit_losses():
            for _ in range(2):
                found = with_gradient(nn.BCEWithLogitsLoss(reduction="none"), x, targets)
                assert all(torch.equal(*pair) for pair in zip(found, own, strict=True))
    assert events.ids == ["kernel.quarantined"]


def test_what_is_not_meant_is_left_alone(device, launched):
    x, targets = made(device)
    wants = targets.clone().requires_grad_()
    calls = {
        "a mean": ((x, targets), {}),
        "a sum": ((x, targets), {"reduction": "sum"}),
        "weights": ((x, targets, torch.ones(7, device=device)), {"reduction": "none"}),
        "weights of targets": ((x, targets), {"pos_weight": torch.ones(7, device=device), "reduction": "none"}),
        "targets with gradients": ((x, wants), {"reduction": "none"}),
        "fp64": ((x.double(), targets.double()), {"reduction": "none"}),
        "half without autocast": ((x.half(), targets.half()), {"reduction": "none"}),
        "another layout": ((x.transpose(0, 1), targets.transpose(0, 1)), {"reduction": "none"}),
        "targets of another layout": ((x, strided(targets)), {"reduction": "none"}),
        "logits of another layout": ((strided(x), targets), {"reduction": "none"}),
        "the negative of its memory": ((torch._neg_view(x), targets), {"reduction": "none"}),
        "no values": ((x.to("meta"), targets.to("meta")), {"reduction": "none"}),
        "nothing": ((x[:0], targets[:0]), {"reduction": "none"}),
    }
    for name, (given, words) in calls.items():
        own = ORIGINAL(*given, **words)
        with logits.fused_logit_losses():
            found = functional.binary_cross_entropy_with_logits(*given, **words)
        assert own.is_meta or torch.equal(found, own), name
    with logits.fused_logit_losses(), pytest.raises(ValueError, match="Target size"):
        functional.binary_cross_entropy_with_logits(x, targets[..., :1], reduction="none")
    assert launched == []


def test_a_function_of_somebody_else_stays_and_torchs_returns_after_an_error(device, monkeypatch, launched):
    x, targets = made(device)

    @functools.wraps(ORIGINAL)
    def theirs(*args, **kwargs):
        return ORIGINAL(*args, **kwargs) * 2

    with monkeypatch.context() as patch:
        patch.setattr(functional, "binary_cross_entropy_with_logits", theirs)
        with logits.fused_logit_losses():
            assert functional.binary_cross_entropy_with_logits is theirs
        assert functional.binary_cross_entropy_with_logits is theirs
    with pytest.raises(KeyboardInterrupt), logits.fused_logit_losses():
        with logits.fused_logit_losses():
            kept = functional.binary_cross_entropy_with_logits
        assert functional.binary_cross_entropy_with_logits is not ORIGINAL
        raise KeyboardInterrupt
    assert torch.equal(kept(x, targets, reduction="none"), OWN(x, targets))  # whoever has kept it gets torch's
    assert launched == []


def test_hooks_for_saved_tensors_see_what_torch_saves(device, launched):
    """Gradient checkpointing counts that, in forward and again in backward."""
    x, targets = made(device)
    leaf = x.clone().requires_grad_()

    def loss(given):
        return functional.binary_cross_entropy_with_logits(given * 1, targets, reduction="none") * 2

    with logits.fused_logit_losses():
        checkpoint(loss, leaf, use_reentrant=False).sum().backward()
    assert relative_error(leaf.grad, 2 * exact(x, targets)[1]) < 1e-6
    assert launched == []


@pytest.mark.parametrize("proven", [False, True])
def test_inference_mode(device, launched, events, proven):
    """Torch copies targets of a teacher, to keep them for backward; without gradients no kernel can be proven."""
    x, targets = made(device, dtype=torch.bfloat16)
    loss = nn.BCEWithLogitsLoss(reduction="none")
    with torch.inference_mode():
        theirs = targets.clone()
    with logits.fused_logit_losses(), torch.autocast(device, torch.bfloat16):
        if proven:
            loss(x, targets)
        launched.clear()
        leaf = x.clone().requires_grad_()
        loss(leaf, theirs).sum().backward()
        assert launched == []
        with torch.inference_mode():
            loss(x, targets)
    assert launched == ([("logit_losses", x.numel())] if proven else [])
    assert relative_error(leaf.grad, exact(x, targets)[1]) < 1e-2
    assert not events.ids


@pytest.mark.skipif(
    not hasattr(getattr(torch, "compiler", None), "is_compiling"), reason="torch does not say whether it compiles"
)
def test_a_compiler_finds_torchs_function_in_one_graph():
    x, targets = made("cpu")

    def loss(x, targets):
        return functional.binary_cross_entropy_with_logits(x, targets, reduction="none")

    with logits.fused_logit_losses():
        torch.compiler.reset()
        found = torch.compile(loss, backend="eager", fullgraph=True)(x, targets)
    torch.testing.assert_close(found, OWN(x, targets))


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="TorchScript of torch 1.13 asks no function what to read")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_is_scripted_during_a_run_has_torchs_function():
    x, targets = made("cpu")
    with logits.fused_logit_losses():
        scripted = torch.jit.script(nn.BCEWithLogitsLoss(reduction="none"))
    torch.testing.assert_close(scripted(x, targets), OWN(x, targets))
