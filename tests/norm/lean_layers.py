"""Layers that offer their activations, joined by tests into networks of every kind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from yolo_rocm.norm import kept_bytes, lean
from yolo_rocm.norm.keeping import Kept

from .stand_in import norm_act

Network = Callable[["Layers", torch.Tensor], torch.Tensor]


class Layers(nn.Module):
    """Convolutions with BatchNorm and SiLU, to be joined in any way."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(count))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(count))
        self.narrow = nn.Conv2d(2, 4, 1)
        self.wide = nn.Conv2d(8, 4, 1)

    def act(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return an activation, and offer it."""
        return norm_act(self.convs[index](x), self.norms[index])


def layers_of(count: int = 4) -> tuple[Layers, torch.Tensor]:
    torch.manual_seed(0)
    return Layers(count), torch.rand(2, 4, 6, 6)


def gradients(network: Network, on: bool, count: int = 4, smallest: int = 0) -> list[torch.Tensor]:
    layers, x = layers_of(count)
    x.requires_grad_()
    if on:
        with lean.on(smallest):
            y = network(layers, x)
    else:
        y = network(layers, x)
    (y * y).sum().backward()
    return [x.grad, *(p.grad for p in layers.parameters() if p.grad is not None)]


def same(network: Network, count: int = 4) -> None:
    for one, other in zip(gradients(network, True, count), gradients(network, False, count), strict=True):
        assert torch.equal(one, other)


def kept_of(network: Network, count: int = 4) -> list[object]:
    """Return how the non-leaf tensors are kept."""
    layers, x = layers_of(count)
    with lean.on(0), kept_bytes.counted() as kept:
        network(layers, x)
    return [keeping for keeping in kept._kept if not (isinstance(keeping, Kept) and keeping._tensor is x)]


def after(layers: Layers, y: torch.Tensor) -> torch.Tensor:
    return layers.convs[1](y)


NETWORKS: dict[str, Network] = {
    "activation": lambda n, x: after(n, n.act(0, x)),
    "chunk": lambda n, x: n.narrow(n.act(0, x).chunk(2, 1)[1]),
    "split": lambda n, x: n.narrow(n.act(0, x).split((2, 2), 1)[0]),
    "slice": lambda n, x: after(n, n.act(0, x)[:, :, 1::2, 2:]),
    "view of a view": lambda n, x: n.narrow(n.act(0, x)[1:].chunk(2, 1)[1].transpose(2, 3)),
    "cat": lambda n, x: n.wide(torch.cat([n.act(0, x), n.act(1, x)], 1)),
    "cat of halves": lambda n, x: n.wide(torch.cat((*n.act(0, x).chunk(2, 1), n.act(1, x)), dim=1)),
    "cat along the height": lambda n, x: after(n, torch.cat([n.act(0, x), n.act(2, x)], dim=2)),
    "sum": lambda n, x: after(n, n.act(0, x) + n.act(2, x)),
    "sum with a kept tensor": lambda n, x: _residual(n, x),
    "half of a sum": lambda n, x: n.narrow((n.act(0, x) + n.act(2, x)).chunk(2, 1)[1]),
    "up-sampling": lambda n, x: after(n, nn.Upsample(scale_factor=2, mode="nearest")(n.act(0, x))),
    "pooling": lambda n, x: after(n, nn.MaxPool2d(3, 1, 1)(n.act(0, x))),
    "neck": lambda n, x: n.wide(torch.cat([nn.Upsample(scale_factor=2)(n.act(0, x[..., ::2, ::2])), n.act(1, x)], 1)),
    "channels_last": lambda n, x: n.wide(
        torch.cat([n.act(i, x.contiguous(memory_format=torch.channels_last)) for i in (0, 1)], 1)
    ),
}


def _residual(layers: Layers, x: torch.Tensor) -> torch.Tensor:
    kept = layers.convs[0](x)
    return layers.convs[2](kept + norm_act(layers.convs[1](kept), layers.norms[1]))
