"""torch's own kernels below the seam: by what torch hands out, by other operators, or not at all."""

from __future__ import annotations

import copy

import pytest
import torch

from yolo_rocm.engines import dispatcher
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.norm import native, seam
from yolo_rocm.norm.native import Aten, Vendor, reachable
from yolo_rocm.norm.seam import patched

from .calls import made

HAS_OTHER_WAYS = hasattr(torch.ops.aten, "batch_norm_backward")


@pytest.fixture
def older(monkeypatch):
    """Torch hands out no kernels, as before 2.9."""
    monkeypatch.setattr(dispatcher, "_HANDED_OUT", None)
    monkeypatch.setattr(dispatcher, "HANDS_OUT", False)
    STATE.clear()
    yield monkeypatch
    monkeypatch.undo()
    STATE.clear()


def steps(bn, x):
    """Return what two steps and an evaluation compute; the layer stays as it is."""
    bn, found = copy.deepcopy(bn), []
    for training in (True, True, False):
        leaf = x.detach().clone().requires_grad_()
        y = bn.train(training)(leaf)
        y.square().sum().backward()
        found += [y.detach(), leaf.grad]
    return [*found, *(p.grad for p in bn.parameters()), *bn.buffers()]


LAYERS = {
    "plain": lambda: (torch.nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)),
    "without parameters": lambda: (torch.nn.BatchNorm2d(3, affine=False), torch.randn(2, 3, 4, 4)),
    "half": lambda: (torch.nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4).bfloat16()),
    "channels_last": lambda: (
        torch.nn.BatchNorm2d(3),
        torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    ),
}


@pytest.mark.skipif(not HAS_OTHER_WAYS, reason="torch < 2.4 has no other operators that reach a CPU's kernels")
@pytest.mark.parametrize("kind", LAYERS)
def test_other_operators_reach_the_same_kernels(older, kind):
    torch.manual_seed(0)
    layer = LAYERS[kind]()
    expected = steps(*layer)
    with patched(("cpu",), "aten") as report:
        assert dispatcher.hides("native_batch_norm", "CPU")
        assert dispatcher.below("native_batch_norm", "CPU") is None
        assert not dispatcher.hides("batch_norm_backward", "CPU")
        found = steps(*layer)
        for training, saved in ((True, 3), (False, 0)):
            given = (torch.zeros(3), torch.ones(3), training, 0.1, 1e-5)
            result = native.native_batch_norm(torch.randn(2, 3, 4), None, None, *given)
            assert [t.shape for t in result] == [(2, 3, 4), (saved,), (saved,)]
    assert set(report.engines()) == {"aten"}
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", LAYERS)
def test_where_there_is_no_way_it_is_said_and_plain_pytorch_computes(older, kind):
    """A patch that ends while another thread calls its kernels leaves them in on an older torch."""
    older.setattr(native, "_has", lambda name, key: name == "native_batch_norm")
    torch.manual_seed(0)
    layer = LAYERS[kind]()
    expected = steps(*layer)
    assert not reachable("cpu")
    assert Aten().not_supported_reasons(made()) == [f"torch {torch.__version__} gives no way to its kernels for cpu"]
    with patched(("cpu",), "gemm") as report:
        seam._seam.serving = {}
        found = steps(*layer)
    assert not report.served
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2) if kind == "half" else torch.testing.assert_close(
        found, expected, rtol=1e-4, atol=1e-5
    )


def test_a_vendor_library_cannot_be_reached_where_torch_hands_out_nothing(older):
    problem = made(device="cuda:0")
    assert Vendor().not_supported_reasons(problem) == [
        f"torch {torch.__version__} gives no way to the vendor library's kernels"
    ]
    assert Aten().not_supported_reasons(problem) == [] or torch.version.cuda or torch.version.hip


@pytest.mark.skipif(not dispatcher.HANDS_OUT, reason="torch < 2.9 hands out no kernels")
def test_what_is_handed_out_is_torchs_own_and_forgotten_with_the_patch():
    x = torch.randn(2, 3, 4)
    arguments = (x, None, None, None, None, True, 0.1, 1e-5)
    expected = torch.native_batch_norm(*arguments)
    assert dispatcher.below("native_batch_norm", "CPU") is None
    with patched(("cpu",), "gemm"):
        found = dispatcher.below("native_batch_norm", "CPU")(*arguments)
        assert native.native_batch_norm(*arguments)[0].equal(expected[0])
    assert all(map(torch.equal, found, expected))
    assert not dispatcher.hides("native_batch_norm", "CPU")
    assert native.native_batch_norm(*arguments)[0].equal(expected[0])


def test_devices_that_torch_is_not_built_for_are_planned():
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch is built for a GPU")
    assert Aten().not_supported_reasons(made(device="cuda:0")) == []
