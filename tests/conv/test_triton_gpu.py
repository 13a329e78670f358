"""What triton alone has to show on a GPU: launches, TF32, plans. `test_kernel_engines_gpu` has what others show too."""

from __future__ import annotations

import pytest
import torch

from yolo_rocm.bench.layers import model_layers
from yolo_rocm.conv.algorithms import BY_NAME
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.plan import CONVOLUTION, Operands, Planner
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.device_state import STATE
from yolo_rocm.engines.triton import direct, launch
from yolo_rocm.engines.triton.available import device_reason, triton_version

from .problems import in_doubles, native_passes

DEVICE = "cuda:0"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(torch.cuda.is_available() and device_reason(DEVICE) is not None, reason="no Triton for it"),
    pytest.mark.usefixtures("ieee"),
]
ROOM = 1 << 40


def run(algorithm, problem, which, operands):
    return CONVOLUTION.run(algorithm, problem, which, operands, ROOM)


@pytest.mark.parametrize("groups", [1, 32], ids=["gemm", "depthwise"])
@pytest.mark.parametrize("channels_last", [False, True], ids=["nchw", "nhwc"])
def test_the_private_launch_does_what_the_public_one_does(monkeypatch, channels_last, groups):
    """To the last bit, with versions of Triton that it is taken for; with others nothing is repeated."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layer = torch.nn.Conv2d(32, 32, 3, 1, 1, groups=groups, device="cuda").half().to(memory_format=layout)
    x = torch.randn(4, 32, 20, 20, device="cuda").half().contiguous(memory_format=layout)

    def passes():
        STATE.clear()
        found = []
        with installed(Patch(["cuda"], Planner("triton", remember=False))):
            for _ in range(3):
                leaf = x.detach().requires_grad_()
                y = layer(leaf)
                found.append([y.detach(), *torch.autograd.grad(y.float().square().sum(), [leaf, layer.weight])])
        return found, len(launch._ready)

    private, repeated = passes()
    assert not direct._given_up
    assert (repeated > 0) == (direct.OLDEST <= triton_version() <= direct.NEWEST)
    with monkeypatch.context() as patch:
        patch.setattr(direct, "NEWEST", (3, 0))
        public, repeated = passes()
    assert repeated == 0
    STATE.clear()
    for ours, wanted in zip(private, public, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))


@pytest.mark.skipif(torch.version.hip is not None, reason="AMD GPUs have no TF32")
def test_tf32_only_where_the_user_allows_it():
    problem = model_layers("yolov8n.yaml", 320, 2, torch.float32, DEVICE, True)[6].problem
    operands = Operands.of(problem)
    exact = native_passes(problem, in_doubles(operands))["forward"]
    algorithm = BY_NAME["triton_l"]

    def error():
        return float((run(algorithm, problem, "forward", operands).double() - exact).norm() / exact.norm())

    ieee_error = error()
    torch.backends.cuda.matmul.allow_tf32 = True
    assert error() > 50 * ieee_error
    torch.backends.cuda.matmul.allow_tf32 = False
    assert error() == ieee_error < 1e-6


def test_what_was_tuned_is_not_tuned_by_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))  # nothing compiled before
    problems = [layer.problem for layer in model_layers("yolov8n.yaml", 640, 8, torch.float16, DEVICE, True)]
    assert len(Planner("auto", vendor_library=True).tune(problems)) == len(set(problems))
    assert Planner("auto", vendor_library=True).tune(problems) == {}
