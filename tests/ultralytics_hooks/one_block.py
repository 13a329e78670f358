"""A block of Ultralytics and its input."""

from __future__ import annotations

import torch
from torch import nn
from ultralytics.nn.modules.conv import Conv

FORWARD = Conv.forward  # Ultralytics' own


def block(kind: type[nn.Module] = Conv, *args, **options) -> nn.Module:
    torch.manual_seed(0)
    module = kind(4, 8, *args, **options).train()
    nn.init.normal_(module.bn.weight)
    return module


def image() -> torch.Tensor:
    return torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(3))
