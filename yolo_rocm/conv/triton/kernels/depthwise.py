"""Direct kernels for depthwise convolutions: a layer that moves bytes, with nothing to multiply matrices for.

A tile is (pixels x channels): many pixels of a few channels in NCHW, few pixels of many channels in channels_last.
MULTIPLIER output channels belong to each input channel: output channel o reads input channel o // MULTIPLIER.
Formulas and signatures as in `implicit_gemm`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....engines.triton.values import activated
from .implicit_gemm import SIZES, along_axis


@triton.jit(do_not_specialize=SIZES)
def depthwise(
    src, weight, bias, out,                            # tensors: x, w, bias, y; with GRAD_INPUT gy, w, anything, gx
    batch, phase_h, phase_w,                           # samples; size of the largest stride phase of `out`, pixels
    out_h, out_w, src_h, src_w,                        # sizes of `out` and `src`, pixels
    channels,                                          # channels of `out`
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    weight_o, weight_y, weight_x,                      # of `weight`: output channel, tap; elements
    out_n, out_c, out_y, out_x,                        # of `out`, elements
    MULTIPLIER: tl.constexpr,                          # output channels of an input channel
    KH: tl.constexpr, KW: tl.constexpr,                # size of the kernel, taps
    SH: tl.constexpr, SW: tl.constexpr,                # stride of the convolution, pixels
    PH: tl.constexpr, PW: tl.constexpr,                # padding, pixels
    DH: tl.constexpr, DW: tl.constexpr,                # dilation, pixels
    GCD_H: tl.constexpr, GCD_W: tl.constexpr,          # gcd(stride, dilation); 1 in a forward pass
    MODINV_H: tl.constexpr, MODINV_W: tl.constexpr,    # see `first_tap`; 0 in a forward pass
    GRAD_INPUT: tl.constexpr,                          # gradient of the input instead of the forward pass
    BIAS: tl.constexpr,                                # whether `bias` is added
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # of the result, see `activated`; "identity" leaves it as it is
    EXACT: tl.constexpr,                               # whether the activation divides exactly
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,      # tile: pixels, channels
):  # fmt: skip
    """Compute the forward pass, or with GRAD_INPUT the gradient of the input, by stride phases as in `gather_gemm`.

        y[b, o, oy, ox] = bias[o] + sum over ky, kx of
            w[o, ky, kx] * x[b, o // MULTIPLIER, oy SH - PH + ky DH, ox SW - PW + kx DW]
        gx[b, c, iy, ix] = sum over the o of c, and over the ky, kx for which both divisions are whole, of
            w[o, ky, kx] * gy[b, o, (iy + PH - ky DH) / SH, (ix + PW - kx DW) / SW]

    Grid: samples x tiles of the pixels of a phase; tiles of channels; phases.
    """
    tiles_p = tl.cdiv(phase_h * phase_w, BLOCK_P)
    p = (tl.program_id(0) % tiles_p) * BLOCK_P + tl.arange(0, BLOCK_P)
    b = tl.program_id(0) // tiles_p
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    px = p % phase_w
    py = p // phase_w
    phase = tl.program_id(2)
    out_row, y, ky, taps_y = along_axis(py, phase // SW, KH, SH, PH, DH, GCD_H, MODINV_H, GRAD_INPUT)
    out_column, x, kx, taps_x = along_axis(px, phase % SW, KW, SW, PW, DW, GCD_W, MODINV_W, GRAD_INPUT)
    SRC_STEP_Y: tl.constexpr = -(DH // GCD_H) if GRAD_INPUT else DH
    SRC_STEP_X: tl.constexpr = -(DW // GCD_W) if GRAD_INPUT else DW
    TAP_STEP_Y: tl.constexpr = SH // GCD_H if GRAD_INPUT else 1
    TAP_STEP_X: tl.constexpr = SW // GCD_W if GRAD_INPUT else 1
    SUMMED: tl.constexpr = MULTIPLIER if GRAD_INPUT else 1
    pixel_mask = (py < phase_h) & (out_row < out_h) & (out_column < out_w)
    channel_mask = c < channels
    if INT64:
        b = b.to(tl.int64)
    acc = tl.zeros((BLOCK_P, BLOCK_C), dtype=tl.float32)
    for number in range(SUMMED):
        if GRAD_INPUT:
            src_channel = c * MULTIPLIER + number
            o = src_channel
        else:
            src_channel = c // MULTIPLIER
            o = c
        # The way from one tap to the next is the same for all pixels: addresses are computed once.
        src_pixel = src + (y * src_y + x * src_x)[:, None] + (b * src_n + src_channel * src_c)[None, :]
        for ty in range(taps_y):
            for tx in range(taps_x):
                iy = y + ty * SRC_STEP_Y
                ix = x + tx * SRC_STEP_X
                src_mask = pixel_mask & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
                src_tap = src_pixel + (ty * SRC_STEP_Y * src_y + tx * SRC_STEP_X * src_x)
                values = tl.load(src_tap, mask=src_mask[:, None] & channel_mask[None, :], other=0.0).to(tl.float32)
                tap = (ky + ty * TAP_STEP_Y) * weight_y + (kx + tx * TAP_STEP_X) * weight_x
                taps = tl.load(weight + o * weight_o + tap, mask=channel_mask, other=0.0).to(tl.float32)
                acc = tl.fma(values, taps[None, :], acc)
    if BIAS:
        acc += tl.load(bias + c, mask=channel_mask, other=0.0).to(tl.float32)[None, :]
    acc = activated(acc, ACTIVATION, SLOPE, EXACT)
    pointers = out + (out_row * out_y + out_column * out_x)[:, None] + (b * out_n + c * out_c)[None, :]
    tl.store(pointers, acc.to(out.dtype.element_ty), mask=pixel_mask[:, None] & channel_mask[None, :])


@triton.jit(do_not_specialize=[*SIZES, "pixels", "split_pixels"])
def depthwise_weight(
    src, grad, partial,                                # tensors: x, gy, partial sums in fp32
    pixels, split_pixels,                              # output pixels of the batch, and of one split
    out_h, out_w, src_h, src_w,                        # sizes of `grad` and `src`, pixels
    channels,                                          # output channels
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    grad_n, grad_c, grad_y, grad_x,                    # of `grad`, elements
    MULTIPLIER: tl.constexpr,                          # output channels of an input channel
    KH: tl.constexpr, KW: tl.constexpr,                # size of the kernel, taps
    SH: tl.constexpr, SW: tl.constexpr,                # stride of the convolution, pixels
    PH: tl.constexpr, PW: tl.constexpr,                # padding, pixels
    DH: tl.constexpr, DW: tl.constexpr,                # dilation, pixels
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_P: tl.constexpr, BLOCK_T: tl.constexpr,      # tile: pixels of a step; taps, the next power of two
    BLOCK_C: tl.constexpr,                             # tile: output channels
):  # fmt: skip
    """Compute partial sums of the gradient of the weight, for `sum_partials` to add.

        partial[s, o, ky, kx] = sum over the output pixels (b, oy, ox) of split s of
            gy[b, o, oy, ox] * x[b, o // MULTIPLIER, oy SH - PH + ky DH, ox SW - PW + kx DW]

    Grid: tiles of channels; splits.
    """
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    tap = tl.arange(0, BLOCK_T)
    channel_mask = c < channels
    begin = tl.program_id(1) * split_pixels
    stop = tl.minimum(begin + split_pixels, pixels)
    acc = tl.zeros((BLOCK_T, BLOCK_C), dtype=tl.float32)
    for start in range(begin, stop, BLOCK_P):
        p = start + tl.arange(0, BLOCK_P)
        pixel_mask = p < stop
        ox = p % out_w
        row = p // out_w
        oy = row % out_h
        b = row // out_h
        if INT64:
            b = b.to(tl.int64)
        offsets = (b * grad_n + oy * grad_y + ox * grad_x)[:, None] + (c * grad_c)[None, :]
        gradients = tl.load(grad + offsets, mask=pixel_mask[:, None] & channel_mask[None, :], other=0.0).to(tl.float32)
        y = oy * SH - PH
        x = ox * SW - PW
        src_pixel = src + (b * src_n + y * src_y + x * src_x)[:, None] + ((c // MULTIPLIER) * src_c)[None, :]
        for ky in range(KH):
            for kx in range(KW):
                iy = y + ky * DH
                ix = x + kx * DW
                src_mask = pixel_mask & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
                src_tap = src_pixel + (ky * DH * src_y + kx * DW * src_x)
                values = tl.load(src_tap, mask=src_mask[:, None] & channel_mask[None, :], other=0.0).to(tl.float32)
                product = tl.sum(values * gradients, axis=0)
                acc += tl.where((tap == ky * KW + kx)[:, None], product[None, :], 0.0)
    pointers = partial + (tl.program_id(1).to(tl.int64) * channels + c)[None, :] * (KH * KW) + tap[:, None]
    tl.store(pointers, acc, mask=(tap < KH * KW)[:, None] & channel_mask[None, :])
