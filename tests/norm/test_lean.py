"""Lean memory over whole networks: the same gradients, far fewer bytes kept for backward."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pytest
import torch

from yolo_rocm.norm import kept_bytes, lean
from yolo_rocm.norm.patch import NormPatch
from yolo_rocm.norm.plan import NormPlanner
from yolo_rocm.norm.seam import installed

pytest.importorskip("ultralytics")
NETWORKS = ("yolov8n", "yolo11n", "yolo26n")


@pytest.fixture(scope="module")
def networks() -> dict[str, Any]:
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    return {name: DetectionModel(f"{name}.yaml", nc=3, verbose=False).train() for name in NETWORKS}


@contextmanager
def _fused(engine: str = "gemm") -> Iterator[None]:
    from yolo_rocm.ultralytics_hooks.fused_blocks import fused_blocks

    with installed(NormPatch(("cpu",), NormPlanner(engine, remember=False))), fused_blocks(), lean.installed():
        yield


def _images(channels_last: bool = False) -> torch.Tensor:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
        return
    for part in output.values() if isinstance(output, dict) else output:
        yield from _tensors(part)


def _gradients(network: Any, images: torch.Tensor, on: bool, amp: bool) -> list[torch.Tensor]:
    network.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        with lean.on(0) if on else nullcontext():
            output = network.predict(images)
        loss: Any = sum((tensor * tensor).sum() for tensor in _tensors(output))
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


@pytest.mark.parametrize(
    ("name", "amp", "channels_last"),
    [
        ("yolo26n", True, True),
        *(pytest.param(name, False, last, marks=pytest.mark.deep) for name in NETWORKS for last in (False, True)),
    ],
)
def test_gradients_of_a_network_are_the_same_to_the_last_bit(
    name: str, amp: bool, channels_last: bool, networks: dict[str, Any]
) -> None:
    with _fused():
        found, expected = (_gradients(networks[name], _images(channels_last), on, amp) for on in (True, False))
    assert len(found) == len(expected) > 100
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("amp", [False, True], ids=["fp32", "autocast"])
def test_the_same_with_torchs_own_kernels(amp: bool, networks: dict[str, Any]) -> None:
    with _fused("aten"):
        found, expected = (_gradients(networks["yolo11n"], _images(), on, amp) for on in (True, False))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_additions_are_torchs_own_afterwards() -> None:
    before = torch.Tensor.__add__
    with pytest.raises(KeyboardInterrupt), lean.installed():
        assert torch.Tensor.__add__ is not before
        raise KeyboardInterrupt
    assert torch.Tensor.__add__ is before
    assert "__add__" not in vars(torch.Tensor)


@pytest.mark.skipif(not hasattr(torch, "_fused_sgd_"), reason="torch < 2.3 has no fused SGD")
@pytest.mark.parametrize("refusal", [None, RuntimeError, TypeError], ids=["this torch", "torch 2.4", "another"])
def test_a_fused_step_before_backward_is_found_like_any_other(refusal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second head on detached activations, whose backward pass comes after the step of the first."""
    from ultralytics.nn.modules.conv import Conv

    increment = lean._increment

    def one_at_a_time(tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise refusal("increment_version expect a Tensor as input")
        increment(tensor)

    if refusal is not None:
        monkeypatch.setattr(lean, "_increment", one_at_a_time)
    first, second = (Conv(4, 4, 3).train() for _ in range(2))
    optimizer = torch.optim.SGD(first.parameters(), 0.5, fused=True)
    x = torch.rand(2, 4, 8, 8)
    with _fused(), lean.on(0):
        features = first(x)
        loss, other = features[:, :2].mean(), second(features.detach()).sum()
        loss.backward()
        versions = [p._version for p in first.parameters()]
        optimizer.step()
        assert all(p._version > was for p, was in zip(first.parameters(), versions, strict=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            other.backward()
    with pytest.raises(KeyboardInterrupt), lean.installed():
        raise KeyboardInterrupt
    versions = [p._version for p in first.parameters()]
    optimizer.step()  # nothing counts any longer
    assert [p._version for p in first.parameters()] == versions


@pytest.mark.skipif(not hasattr(torch, "func"), reason="torch < 2.0 has no torch.func")
def test_transforms_keep_what_they_keep() -> None:
    """They refuse hooks for what is kept."""
    from ultralytics.nn.modules.conv import Conv

    conv, x = Conv(4, 4, 3).train(), torch.rand(2, 4, 8, 8)
    parameters = {name: p.detach() for name, p in conv.named_parameters()}

    def gradients(on: bool) -> dict[str, torch.Tensor]:
        def loss(parameters: Any, buffers: Any) -> torch.Tensor:
            with lean.on(0) if on else nullcontext():
                found: torch.Tensor = torch.func.functional_call(conv, (parameters, buffers), (x,))
            return found.square().sum()

        found: dict[str, torch.Tensor] = torch.func.grad(loss)(parameters, copy.deepcopy(dict(conv.named_buffers())))
        return found

    wanted = gradients(on=False)
    with _fused():
        found = gradients(on=True)
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-4)


def _bytes(network: Any, *, fused: bool, on: bool) -> int:
    with ExitStack() as stack:
        if fused:
            stack.enter_context(_fused())
        if on:
            stack.enter_context(lean.on(0))
        kept = stack.enter_context(kept_bytes.counted([*network.parameters(), *network.buffers()]))
        network.predict(_images())
    return kept.bytes


@pytest.mark.parametrize("name", NETWORKS)
def test_a_third_of_the_bytes_is_kept(name: str, networks: dict[str, Any]) -> None:
    stock = _bytes(networks[name], fused=False, on=False)
    assert (
        0.65 < _bytes(networks[name], fused=True, on=False) / stock <= 0.72
    )  # statistics count with images this small
    assert _bytes(networks[name], fused=True, on=True) / stock <= 0.36
    assert 0.97 < _bytes(networks[name], fused=False, on=True) / stock <= 1  # nothing is offered
