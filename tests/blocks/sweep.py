"""Small random networks, each run in a random way by torch alone and through the seams: what `test_sweep` compares."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from yolo_rocm.blocks.block import conv_norm_act
from yolo_rocm.engines.torch_state import is_compiling
from yolo_rocm.norm import lean, recipes
from yolo_rocm.norm.fused import norm_act
from yolo_rocm.norm.fusible import fusible

from .steps import served

Results = dict[str, torch.Tensor]
SMOOTH = (nn.SiLU, nn.Identity)
BENT = (nn.ReLU, lambda: nn.LeakyReLU(0.1))  # a rounding may be on the other side of zero: in fp64 alone


class Block(nn.Module):
    """Convolution, BatchNorm and activation, called as `ultralytics_hooks.fused_blocks` calls those of Ultralytics."""

    def __init__(self, conv: nn.Module, channels: int, act: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.act = conv, nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03), act
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the three as one where that is possible."""
        if is_compiling() or not fusible(self.norm, self.act):
            return self.act(self.norm(self.conv(x)))
        y = conv_norm_act(x, self.conv, self.norm, self.act)
        if y is None:
            z = self.conv(x)
            y = norm_act(z, self.norm, self.act)
            y = self.act(self.norm(z)) if y is None else y
        return y


class Residual(nn.Module):
    """A block of as many channels, added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = Block(nn.Conv2d(channels, channels, 3, padding=1, bias=False), channels, nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.block(x)


class Program(NamedTuple):
    """A network, its input, and how it is run.

    Attributes:
        seed: All of it comes from this.
        network: In fp32.
        x: Input in fp32, with the strides that it has in each run.
        way: Name of one of `WAYS`.
        engine: Of convolutions and normalisations.
        dtype: Data type that is computed in; bfloat16 is autocast's.
        lean: Whether lean memory is on.
    """

    seed: int
    network: nn.Sequential
    x: torch.Tensor
    way: str
    engine: str
    dtype: torch.dtype
    lean: bool

    def __str__(self) -> str:
        """Say all that is needed to run it again."""
        head = f"seed {self.seed}: {self.way}, engine {self.engine}, {self.dtype}, lean {self.lean}, "
        return f"{head}{tuple(self.x.shape)} with strides {self.x.stride()} through {self.network}"


def program(seed: int, ways: tuple[str, ...]) -> Program:
    """Draw a program."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    way, dtype = (
        draw.choice(ways),
        draw.choice((torch.float64, torch.float64, torch.float64, torch.float32, torch.bfloat16)),
    )
    dtype = torch.float64 if way in EXACT else dtype
    activations = SMOOTH + BENT if dtype == torch.float64 else SMOOTH
    channels, height, width = draw.choice((1, 2, 4, 6)), draw.randint(1, 9), draw.randint(1, 9)
    x = _strided(draw, torch.randn(draw.choice((2, 2, 3)), channels, height, width))
    layers: list[nn.Module] = []
    for _ in range(draw.randint(1, 3)):
        layer, channels, height, width = _layer(draw, channels, height, width, draw.choice(activations)(), dtype)
        layers.append(layer)
    network = nn.Sequential(*layers)
    if draw.random() < 0.3:
        network = network.to(memory_format=torch.channels_last)
    for parameter in network.parameters():
        if draw.random() < 0.1:
            parameter.requires_grad_(False)
    engine = draw.choice(("gemm", "gemm", "aten", "gemm+aten"))
    return Program(seed, network, x, way, engine, dtype, way not in FULL and draw.random() < 0.5)


def _strided(draw: random.Random, x: torch.Tensor) -> torch.Tensor:
    kind = draw.choice(("nchw", "nhwc", "nhwc", "hwc", "part"))
    if kind == "part":
        return torch.cat((x, x), 1)[:, x.shape[1] :]
    if kind == "hwc":
        return x[:1].permute(0, 2, 3, 1).contiguous()[0].permute(2, 0, 1)[None].expand_as(x)
    return x.contiguous(memory_format=torch.channels_last) if kind == "nhwc" else x


def _layer(
    draw: random.Random, channels: int, height: int, width: int, act: nn.Module, dtype: torch.dtype
) -> tuple[nn.Module, int, int, int]:
    kind = draw.choice(("block", "block", "block", "conv", "depthwise", "groups", "transposed", "residual"))
    if kind == "residual":
        return Residual(channels), channels, height, width
    groups = {"depthwise": channels, "groups": 2 - channels % 2}.get(kind, 1)
    outputs = channels if kind == "depthwise" else groups * draw.choice((1, 1, 2, 4))
    bias = draw.random() < 0.4
    if kind == "transposed":
        kernel, stride = draw.choice((2, 3)), draw.choice((1, 2))
        padding, more = kernel // 3, stride - 1
        conv: nn.Module = nn.ConvTranspose2d(channels, outputs, kernel, stride, padding, more, bias=bias)
        height, width = ((size - 1) * stride + kernel - 2 * padding + more for size in (height, width))
    else:
        usual = draw.random() < 0.5 or dtype == torch.bfloat16  # oneDNN's of torch 2.10 crash with some others
        axes = [_axis(draw, size, usual) for size in (height, width)]
        kernels, strides, paddings, dilations, (height, width) = zip(*axes, strict=True)
        conv = nn.Conv2d(channels, outputs, kernels, strides, paddings, dilations, groups, bias)
    if kind == "conv":
        return conv, outputs, height, width
    return Block(conv, outputs, act), outputs, height, width


def _axis(draw: random.Random, size: int, usual: bool) -> tuple[int, int, int, int, int]:
    """Draw kernel, stride, padding and dilation of an axis; return them, and the size of the output."""
    if usual:
        kernel, stride, dilation = draw.choice((1, 3)), draw.choice((1, 1, 2)), 1
        padding = kernel // 2
    else:
        kernel, stride, dilation = draw.choice((1, 2, 3, 3)), draw.randint(1, 4), draw.randint(1, 4)
        padding = draw.choice((draw.randint(0, 4), dilation * (kernel - 1) // 2))  # or as padding="same" has it
        padding = max(padding, -(-(dilation * (kernel - 1) + 1 - size) // 2))
    return kernel, stride, padding, dilation, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def results(program: Program, *, ours: bool, lean_on: bool = False, dtype: torch.dtype | None = None) -> Results:
    """Run a program, from the same beginning each time.

    Args:
        program: The program.
        ours: Through the seams, or by torch alone.
        lean_on: Whether in lean memory.
        dtype: Data type instead of the program's.
    """
    dtype = dtype or program.dtype
    amp, held = dtype == torch.bfloat16, torch.float32 if dtype == torch.bfloat16 else dtype
    network = copy.deepcopy(program.network).to(held).train()
    x = torch.empty_strided(program.x.shape, program.x.stride(), dtype=held)
    x = (x if 0 not in program.x.stride() else torch.empty(program.x.shape, dtype=held)).copy_(program.x)
    with ExitStack() as stack:
        if ours:
            stack.enter_context(served(program.engine))
            stack.enter_context(lean.installed())
        kept = (lambda: lean.on(0)) if lean_on else nullcontext
        torch.manual_seed(program.seed)
        return WAYS[program.way](network, x.requires_grad_(), _Forward(amp, kept))


class _Forward:
    """A forward pass under autocast and in lean memory, or in one of the two, or in none."""

    def __init__(self, amp: bool, kept: Callable[[], Any]) -> None:
        self._amp, self._kept = amp, kept

    def __call__(self, function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        """Call a function that computes it."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._amp), self._kept():
            return function(*args)


def _weights(y: torch.Tensor) -> torch.Tensor:
    return torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view(y.shape)


def _found(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Results:
    trained = [(name, p) for name, p in [("x", x), *network.named_parameters()] if p.requires_grad]
    # What is zero for certain has none, or has zeros.
    grads = {f"gradient of {name}": torch.zeros_like(p) if p.grad is None else p.grad for name, p in trained}
    return {"y": y, **grads, **{name: each for name, each in network.named_buffers() if each.is_floating_point()}}


def _step(network: nn.Module, x: torch.Tensor, forward: _Forward, call: Callable[..., torch.Tensor]) -> Results:
    y = forward(call, x)
    if y.requires_grad:
        y.backward(_weights(y))
    return _found(network, x, y.detach())


def _plain(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    return _step(network, x, forward, network)


def _checkpointed(network: nn.Module, x: torch.Tensor, forward: _Forward, reentrant: bool) -> Results:
    def call(x: torch.Tensor) -> torch.Tensor:
        for layer in network:
            x = checkpoint(layer, x * 1, use_reentrant=reentrant)
        return x

    return _step(network, x, forward, call)


def _saved(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    def repacked(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    with torch.autograd.graph.saved_tensors_hooks(repacked, repacked):
        return _plain(network, x, forward)


def _twice(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    y = forward(network, x)
    y.backward(_weights(y), retain_graph=True)
    y.backward(_weights(y))
    return _found(network, x, y.detach())


def _penalised(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    y = forward(network, x)
    (grad,) = torch.autograd.grad(y, x, _weights(y), create_graph=True)
    grad.square().sum().backward()
    return _found(network, x, y.detach())


def _not_trained(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    with torch.no_grad():
        forward(network, x)  # statistics are updated
    return _plain(network.eval(), x, forward)


def _inferred(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    with torch.inference_mode():
        y = forward(network.eval(), x)
    return _found(network, x, y)


def _transformed(network: nn.Module, x: torch.Tensor, forward: _Forward) -> Results:
    def loss(x: torch.Tensor, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        y = torch.func.functional_call(network, parameters, (x[None],))
        return (y * _weights(y)).sum()

    network.eval()
    own = {name: each.detach() for name, each in network.named_parameters()}
    each = torch.func.vmap(torch.func.grad(loss, (0, 1)), (0, None))(x.detach(), own)
    _, tangent = torch.func.jvp(network, (x.detach(),), (torch.ones_like(x),))
    return {"x": each[0], **each[1], "tangent": tangent}


WAYS: dict[str, Callable[[nn.Module, torch.Tensor, _Forward], Results]] = {
    "plain": _plain,
    "checkpoint": lambda *given: _checkpointed(*given, reentrant=False),
    "reentrant checkpoint": lambda *given: _checkpointed(*given, reentrant=True),
    "hooks for saved tensors": _saved,
    "backward twice": _twice,
    "gradient penalty": _penalised,
    "eval": _not_trained,
    "inference": _inferred,
    "functorch": _transformed,
}
EXACT = ("gradient penalty", "functorch")  # in fp64: errors of second derivatives are large
# Never in lean memory. torch before 2.1 does not say that others have hooks, which lean memory's own then go before.
FULL = (*EXACT, "inference", *(() if recipes._top else ("hooks for saved tensors",)))
