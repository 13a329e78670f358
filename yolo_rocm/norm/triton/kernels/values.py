"""What the kernels of BatchNorm share: tiles of a tensor, and what is computed of single values.

A tensor is (samples, channels, pixels) in NCHW, and with LAST (rows, channels) in channels_last, where `samples` counts
rows and `pixels` is 1. Sums run over tiles of some channels: BLOCK_A samples x BLOCK_B pixels of one channel, or
BLOCK_A rows x BLOCK_B channels. Whatever belongs to a channel is a vector of as many elements as a tile has channels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....engines.triton.values import sigmoid_of


@triton.jit
def tile_of(
    number, c, samples, channels, pixels,
    LAST: tl.constexpr, INT64: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Return offsets and mask of a tile of the channels `c`, by its number."""
    if LAST:
        row = number * BLOCK_A + tl.arange(0, BLOCK_A)
        mask = (row < samples)[:, None] & (c < channels)[None, :]
        if INT64:
            row = row.to(tl.int64)
        offsets = row[:, None] * channels + c[None, :]
    else:
        across = tl.cdiv(pixels, BLOCK_B)
        sample = (number // across) * BLOCK_A + tl.arange(0, BLOCK_A)
        pixel = (number % across) * BLOCK_B + tl.arange(0, BLOCK_B)
        mask = (sample < samples)[:, None] & (pixel < pixels)[None, :]
        plane = sample * channels + c
        if INT64:
            plane = plane.to(tl.int64)
        offsets = plane[:, None] * pixels + pixel[None, :]
    return offsets, mask


@triton.jit
def values_before(number, samples, pixels, LAST: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr):
    """Return how many values of a channel are in the tiles before one."""
    if LAST:
        before = tl.minimum(number * BLOCK_A, samples)
    else:
        across = tl.cdiv(pixels, BLOCK_B)
        whole = tl.minimum((number // across) * BLOCK_A, samples)
        before = whole * pixels
        before += tl.minimum(BLOCK_A, samples - whole) * tl.minimum((number % across) * BLOCK_B, pixels)
    return before


@triton.jit
def of_channels(values, LAST: tl.constexpr):
    """Return the sums of a tile, one for each of its channels."""
    if LAST:
        total = tl.sum(values, axis=0)
    else:
        total = tl.sum(tl.sum(values, axis=1)[:, None], axis=0)
    return total


@triton.jit
def place_of(
    number, samples, channels, pixels,
    LAST: tl.constexpr, INT64: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """Return offsets and mask of a tile of neighbours in memory, by its number, its channels and which of them exist.

    A tile is BLOCK_A planes, of whichever channels, x BLOCK_B pixels, or BLOCK_A rows x BLOCK_B channels. Channels are
    those of its planes, or of its columns: see `spread`.
    """
    if LAST:
        across = tl.cdiv(channels, BLOCK_B)
        row = (number // across) * BLOCK_A + tl.arange(0, BLOCK_A)
        c = (number % across) * BLOCK_B + tl.arange(0, BLOCK_B)
        there = c < channels
        mask = (row < samples)[:, None] & there[None, :]
        if INT64:
            row = row.to(tl.int64)
        offsets = row[:, None] * channels + c[None, :]
    else:
        across = tl.cdiv(pixels, BLOCK_B)
        plane = (number // across) * BLOCK_A + tl.arange(0, BLOCK_A)
        pixel = (number % across) * BLOCK_B + tl.arange(0, BLOCK_B)
        there = plane < samples * channels
        mask = there[:, None] & (pixel < pixels)[None, :]
        c = plane % channels
        if INT64:
            plane = plane.to(tl.int64)
        offsets = plane[:, None] * pixels + pixel[None, :]
    return offsets, mask, c, there


@triton.jit
def spread(of_channel, LAST: tl.constexpr):
    """Return what belongs to the channels of such a tile so that it meets their values."""
    return of_channel[None, :] if LAST else of_channel[:, None]


@triton.jit
def scale_and_bias(weight, bias, invstd, c, mask, AFFINE: tl.constexpr):
    """Return what (x - mean) is multiplied by, and what is added: z = (x - mean) scale + bias."""
    scale = tl.load(invstd + c, mask=mask, other=0.0)
    if AFFINE:
        scale *= tl.load(weight + c, mask=mask, other=0.0).to(tl.float32)
        added = tl.load(bias + c, mask=mask, other=0.0).to(tl.float32)
    else:
        added = tl.zeros_like(scale)
    return scale, added


@triton.jit
def derived(grad, z, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr, EXACT: tl.constexpr):
    """Return the gradient of a value from the gradient of its activation."""
    if ACTIVATION == "silu":
        sigmoid = sigmoid_of(z, EXACT)
        grad = grad * (sigmoid * tl.fma(z, 1.0 - sigmoid, 1.0))
    elif ACTIVATION == "relu":
        grad = tl.where(z > 0.0, grad, 0.0)
    elif ACTIVATION == "leaky_relu":
        grad = tl.where(z > 0.0, grad, grad * SLOPE)
    return grad
