"""The seam under torch.compile on a GPU, where torch promises contiguous results with the vendor library off."""

from __future__ import annotations

import importlib

import pytest
import torch

import yolo_rocm
from yolo_rocm.engines.backend_flags import vendor_off

from .test_compiling import check_promises, laid

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch < 2 has no torch.compile"),
]
CUDA = ("cuda",)
STEPS = 5  # Inductor's device graphs are warmed up, recorded and replayed within


@pytest.mark.parametrize("vendor", [False, True], ids=["vendor off", "vendor on"])
def test_results_are_laid_out_as_promised(vendor):
    assert vendor or not all(check_promises("cuda", "gemm", vendor))  # torch promises something else


def trained(last, mode, autocast):
    """Return the losses of some steps and what the trained model then predicts."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.SiLU(),
        torch.nn.Conv2d(16, 32, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(32), torch.nn.SiLU(),
        torch.nn.Conv2d(32, 32, 3, 1, 1, groups=32), torch.nn.Conv2d(32, 16, 1), torch.nn.ConvTranspose2d(16, 8, 2, 2),
    ).to("cuda", memory_format=torch.channels_last if last else torch.contiguous_format)  # fmt: skip
    x = laid(torch.rand(4, 3, 32, 32, device="cuda"), last)
    run = torch.compile(net, mode=mode, dynamic=False) if mode else net
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.01), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    run.eval()
    with torch.no_grad():
        return [*losses, *(run(x).clone() for _ in range(3))]


@pytest.mark.parametrize("engine", ["gemm", "triton"])
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_every_mode_trains_through_the_seam(monkeypatch, tmp_path, mode, last, engine):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    importlib.import_module("torch._dynamo").reset()
    with vendor_off("cuda"):
        expected = trained(last, None, False)
        for _ in range(2):
            with yolo_rocm.patched(CUDA, engine) as report:
                torch.testing.assert_close(trained(last, mode, False), expected, rtol=1e-2, atol=1e-3)
                trained(last, mode, True)
            assert {served.plan.engine for served in report.served.values()} == {engine}
            # With max-autotune, Inductor's own template serves the forward passes in which it is faster.
            assert mode.startswith("max-autotune") or all(served.forward_calls for served in report.served.values())
            assert any(served.backward_calls for served in report.served.values())
            torch.testing.assert_close(trained(last, mode, False), expected, rtol=1e-2, atol=1e-3)
