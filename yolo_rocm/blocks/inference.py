"""Blocks of a network that only computes: `act(conv(x))` and `act(norm(conv(x)))` of running statistics, as one."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from ..conv.inference import is_trained, serving
from ..conv.seam import serving as serving_convolutions
from ..engines.autocast import autocast_dtype
from ..engines.layout import laid_out
from ..engines.torch_state import any_global_hook, has_hooks, is_plain_eager
from ..norm.fusible import ACTIVATION_MODULES

_KINDS: Final = (nn.Parameter, torch.Tensor)


def conv_act(x: Any, conv: Any, norm: Any, act: Any) -> torch.Tensor | None:
    """Return `act(conv(x))`, or `act(norm(conv(x)))` in eval mode; None where the modules must be called.

    Nothing of the modules is changed, and nothing that is made of their weights is kept.

    Args:
        x: Input of the convolution.
        conv: The convolution.
        norm: The BatchNorm between the two; None where there is none.
        act: The activation.
    """
    activation = ACTIVATION_MODULES.get(type(act))
    if type(conv) is not nn.Conv2d or activation is None or not is_plain_eager(x):
        return None
    device = "cuda" if x.is_cuda else x.device.type
    patch = serving(device)
    own = conv.__dict__
    if patch is None or autocast_dtype(device) is not None or any_global_hook():
        return None
    stride, padding, dilation = own["stride"], own["padding"], own["dilation"]
    if has_hooks(own) or has_hooks(act.__dict__) or own["padding_mode"] != "zeros":
        return None
    if not type(stride) is type(padding) is type(dilation) is tuple:  # as torch makes them; a padding may be a word
        return None
    filters = own["_parameters"]
    weight, bias = filters.get("weight"), filters.get("bias")
    if (
        not _usable(x, weight)
        or is_trained(weight)
        or not (bias is None or (_usable(x, bias) and bias.shape == weight.shape[:1]))
    ):
        return None
    if norm is not None and not _foldable(norm, weight):
        return None
    slope = float(act.negative_slope) if type(act) is nn.LeakyReLU else 0.0
    geometry = (stride, padding, dilation, own["groups"])
    added = bias is not None or norm is not None
    route = patch.route(x, weight, added, geometry, activation, slope)
    if route is None:
        return None
    convolutions = serving_convolutions(device)
    patch.count(route, None if convolutions is None else convolutions.report)
    if norm is not None:
        weight, bias = _folded(weight, bias, norm)
    return laid_out(route.forward(x, weight, bias), route.problem.channels_last)


def _usable(x: torch.Tensor, parameter: Any) -> bool:
    return type(parameter) in _KINDS and parameter.dtype == x.dtype and parameter.device == x.device


def _foldable(norm: Any, weight: torch.Tensor) -> bool:
    """Return whether a BatchNorm scales and shifts channels by what it has: in eval mode, unwatched, complete."""
    if type(norm) is not nn.BatchNorm2d or norm.training or not norm.track_running_stats or has_hooks(norm.__dict__):
        return False
    if not norm.eps > 0:  # newer torch refuses it
        return False
    tensors: list[Any] = [norm._parameters.get(name) for name in ("weight", "bias")]
    tensors += [norm._buffers.get(name) for name in ("running_mean", "running_var")]
    device, shape = weight.device, weight.shape[:1]
    return all(
        type(each) in _KINDS and each.device == device and each.is_floating_point() and each.shape == shape
        for each in tensors
    )


def _folded(weight: torch.Tensor, bias: torch.Tensor | None, norm: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weight and bias of the convolution with the BatchNorm in them, computed in fp32 at least."""
    mean, var = norm._buffers["running_mean"], norm._buffers["running_var"]
    assert mean is not None  # or it is not foldable
    assert var is not None
    wide = torch.promote_types(weight.dtype, torch.float32)
    scale = norm.weight.to(wide) * torch.rsqrt(var.to(wide) + norm.eps)
    shift = norm.bias.to(wide) - mean.to(wide) * scale
    if bias is not None:
        shift = shift + bias.to(wide) * scale
    return (weight.to(wide) * scale[:, None, None, None]).to(weight.dtype), shift.to(weight.dtype)
