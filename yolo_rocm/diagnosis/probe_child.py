"""`python -m yolo_rocm.diagnosis.probe_child --device cuda NAMES FILE`: answers probes with one JSON line each.

A line announces each probe before it begins, so that whoever listens knows which one brought the process down.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

from ..utils.child_process import no_crash_dialogue
from .probes import LONG_ROWS, SHAPES, TORCH_NAMES, DeviceProbe, ProbeShape, all_probes

if TYPE_CHECKING:
    import torch


def main(arguments: list[str] | None = None) -> None:
    """Answer the probes named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("names", help="names of probes, separated by commas")
    parser.add_argument("answers", help="file that answers are added to")
    given = parser.parse_args(arguments)
    asked = given.names.split(",")
    no_crash_dialogue()
    os.environ.pop("YOLO_ROCM", None)  # the engines are probed even where they are switched off
    with open(given.answers, "a", encoding="utf-8") as answers:
        _answer_all([probe for probe in all_probes() if probe.name in asked], given.device, answers)


def _answer_all(probes: Sequence[DeviceProbe], device_name: str, answers: IO[str]) -> None:
    """Announce and answer probes, one after the other; what one raises is its answer."""

    def say(**line: Any) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    if probes:
        say(probe=probes[0].name, begin=True)
    import torch

    from ..engines.hip.available import device_reason as hip_reason
    from ..engines.triton.available import device_reason as triton_reason

    reasons: dict[str, Callable[[str], str | None]] = {"triton": triton_reason, "hip": hip_reason}
    device = torch.device(device_name)
    # IEEE arithmetic without TF32, and no kernel search beyond what a library does by itself.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    for probe in probes:
        say(probe=probe.name, begin=True)
        if probe.way in reasons and (reason := reasons[probe.way](device_name)) is not None:
            say(probe=probe.name, skipped=reason)
            continue
        try:
            error, detail = _ask(probe, device)
        except Exception as failure:
            text = f"{type(failure).__name__}: {failure}".strip()
            say(probe=probe.name, message=text[:2000])
            if probe.kind == "device":
                for left in probes[probes.index(probe) + 1 :]:
                    say(probe=left.name, skipped="there is no device to ask")
                return
            if not _alive(device):  # some errors stay in the runtime and would be taken for those of the next probe
                say(restart=True)
                return
        else:
            say(probe=probe.name, error=error, detail=detail)


def _alive(device: torch.device) -> bool:
    import torch

    try:
        return float(torch.ones(64, device=device).sum()) == 64.0
    except Exception:
        return False


def _ask(probe: DeviceProbe, device: torch.device) -> tuple[float, dict[str, Any]]:
    if probe.kind == "device":
        return _device(device)
    if probe.kind == "pinned":
        return _pinned(device), {}
    if probe.kind == "gemm":
        return _gemm(probe, device), {}
    if probe.kind == "long_gemm":
        return _long_gemm(probe, device), {}
    with _way(probe.way, device):
        error = _conv(probe, device) if probe.kind == "conv" else _norm(probe, device)
    if probe.way != "hip":
        return error, {}
    from ..engines.hip.available import in_words

    # What compiles. Not among the facts of the device: a compiler that hangs is not its fault.
    return error, {"hip_engine": in_words(str(device))}


@contextmanager
def _way(way: str, device: torch.device) -> Iterator[None]:
    """Let convolution and BatchNorm be computed one way."""
    from ..conv.patch import Patch
    from ..conv.plan import Planner
    from ..conv.seam import installed
    from ..engines.backend_flags import vendor_off

    with vendor_off(device.type) if way != "vendor" else nullcontext():
        if way in ("vendor", "off"):
            yield
        else:
            with installed(Patch([device.type], Planner(way, remember=False))):
                yield


def _device(device: torch.device) -> tuple[float, dict[str, Any]]:
    """Check that the device is there and can add; say what it is."""
    import torch

    from ..engines.triton.available import in_words

    detail: dict[str, Any] = {"torch": torch.__version__, "hip": torch.version.hip, "cuda": torch.version.cuda}
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError("torch finds no GPU: torch.cuda.is_available() is False")
        properties: Any = torch.cuda.get_device_properties(device)
        detail.update(
            name=properties.name,
            # A CUDA build repeats the name there.
            gfx=getattr(properties, "gcnArchName", "").partition(":")[0] if torch.version.hip else None,
            memory_gb=round(properties.total_memory / 2**30, 1),
            count=torch.cuda.device_count(),
            arch_list=torch.cuda.get_arch_list(),
        )
    detail.update(triton=in_words(str(device)))
    total = int(torch.arange(1000, device=device).mul(2).sum())
    return 0.0 if total == 999_000 else 1.0, detail


def _gemm(probe: DeviceProbe, device: torch.device) -> float:
    """Multiply matrices, one pair and a batch of pairs: all engines of this package are made of these."""
    import torch

    errors = []
    for left, right in (((256, 384), (384, 320)), ((4, 96, 144), (4, 144, 80))):
        a, b = _draw(left, probe.dtype, 1), _draw(right, probe.dtype, 2)
        errors.append(_distance(torch.matmul(a.to(device), b.to(device)), a.double() @ b.double()))
    return _worst(errors)


def _long_gemm(probe: DeviceProbe, device: torch.device) -> float:
    """Multiply many rows by a small matrix, in turn with fp32: a second product in 16 bit fails on some stacks."""
    import torch

    errors = []
    for dtype in (probe.dtype, "fp32", probe.dtype):
        a, b = _draw((LONG_ROWS, 8), dtype, 1), _draw((8, 8), dtype, 2)
        # Rows that are left unwritten must not hold what an earlier product has left there.
        out = torch.full((LONG_ROWS, 8), float("nan"), dtype=a.dtype, device=device)
        torch.mm(a.to(device), b.to(device), out=out)
        if dtype == probe.dtype:
            errors.append(_distance(out, a.double() @ b.double()))
    return _worst(errors)


def _conv(probe: DeviceProbe, device: torch.device) -> float:
    """Run one convolution forward and backward."""
    import torch

    shape = SHAPES[probe.shape]
    x, weight, grad, exact = _conv_reference(probe.shape, probe.dtype)
    layout = torch.channels_last if probe.layout == "nhwc" else torch.contiguous_format
    x = x.to(device).contiguous(memory_format=layout).requires_grad_()
    weight = weight.to(device).contiguous(memory_format=layout).requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, None, shape.stride, shape.kernel // 2, 1, shape.groups)
    found = (y, *torch.autograd.grad(y, (x, weight), grad.to(device)))
    return _worst([_distance(got, true) for got, true in zip(found, exact, strict=True)])


@lru_cache(maxsize=32)
def _conv_reference(name: str, dtype: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return input, weight, gradient and the exact results, from unfolding and matrix products on the CPU in fp64.

    Not from a convolution of torch: on a CPU that is the very thing under test.
    """
    import torch

    shape = SHAPES[name]
    x = _draw((shape.batch, shape.channels, shape.size, shape.size), dtype, 1)
    weight = _draw((shape.out, shape.channels // shape.groups, shape.kernel, shape.kernel), dtype, 2)
    x64, weight64 = x.double().requires_grad_(), weight.double().requires_grad_()
    y = _unfolded(x64, weight64, shape)
    grad = _draw(tuple(y.shape), dtype, 3)
    gradients = torch.autograd.grad(y, (x64, weight64), grad.double())
    return x, weight, grad, (y.detach(), *gradients)


def _unfolded(x: torch.Tensor, weight: torch.Tensor, shape: ProbeShape) -> torch.Tensor:
    import torch

    columns = torch.nn.functional.unfold(x, shape.kernel, padding=shape.kernel // 2, stride=shape.stride)
    grouped = columns.reshape(shape.batch, shape.groups, -1, columns.shape[-1])
    y = weight.reshape(shape.groups, shape.out // shape.groups, -1) @ grouped
    side = (shape.size - 1) // shape.stride + 1
    return y.reshape(shape.batch, shape.out, side, side)


def _norm(probe: DeviceProbe, device: torch.device) -> float:
    """Run BatchNorm as in training, forward and backward; its own parameters stay fp32, as under AMP."""
    import torch

    x, grad = _draw((4, 16, 24, 24), probe.dtype, 1), _draw((4, 16, 24, 24), probe.dtype, 2)
    scale, shift = _draw((16,), "fp32", 3), _draw((16,), "fp32", 4)
    x64 = x.double().requires_grad_()
    mean, variance = x64.mean((0, 2, 3), keepdim=True), x64.var((0, 2, 3), unbiased=False, keepdim=True)
    weight64, bias64 = scale.double().view(1, -1, 1, 1), shift.double().view(1, -1, 1, 1)
    exact = (x64 - mean) / (variance + 1e-3).sqrt() * weight64 + bias64
    (true_gradient,) = torch.autograd.grad(exact, x64, grad.double())
    layout = torch.channels_last if probe.layout == "nhwc" else torch.contiguous_format
    own = x.to(device).contiguous(memory_format=layout).requires_grad_()
    running = torch.zeros(16, device=device), torch.ones(16, device=device)
    y = torch.nn.functional.batch_norm(own, *running, scale.to(device), shift.to(device), True, 0.03, 1e-3)
    (gradient,) = torch.autograd.grad(y, own, grad.to(device))
    return _worst([_distance(y, exact.detach()), _distance(gradient, true_gradient)])


def _pinned(device: torch.device) -> float:
    """Send numbers through pinned memory and back."""
    import torch

    if device.type != "cuda":
        raise RuntimeError("needs a GPU")
    sent = _draw((1 << 18,), "fp32", 1).pin_memory()
    if not sent.is_pinned():
        raise RuntimeError("pin_memory() gave memory that is not pinned")
    arrived = sent.to(device, non_blocking=True)
    torch.cuda.synchronize(device)
    return 0.0 if torch.equal(arrived.cpu(), sent) else 1.0


def _draw(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """Return random numbers on the CPU, rounded to a dtype, the same in every process."""
    import torch

    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul_(0.5)
    return drawn.to(getattr(torch, TORCH_NAMES[dtype]))


def _distance(value: torch.Tensor, exact: torch.Tensor) -> float:
    from ..engines.measure import relative_error

    return relative_error(value.detach().cpu(), exact)


def _worst(errors: list[float]) -> float:
    """Return the largest error, and NaN where there is one: NaN is never larger than anything."""
    return next((error for error in errors if error != error), max(errors))


if __name__ == "__main__":
    main()
