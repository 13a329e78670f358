"""Implicit GEMMs in Triton: forward and gradient of the input, and a transposing copy.

No column buffer: an address is computed for each tap of the kernel, in the loop. All tensors come with their strides,
so NCHW and channels_last are read and written in place. Sums are fp32.

In all formulas b is a sample, g a group, c and o an input and an output channel of it, (oy, ox) a pixel of the output,
(iy, ix) a pixel of the input and (ky, kx) a tap. Reads outside of a tensor give 0. A kernel's signature is the table of
its parameters: names, then meaning and unit. Sizes end in h and w, coordinates in y and x; `tl.constexpr` are capitals.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....engines.triton.values import activated

# Sizes that only bound loops or masks: a kernel per value would buy nothing and cost a compilation each.
SIZES = ["batch", "phase_h", "phase_w", "out_h", "out_w", "src_h", "src_w"]


@triton.jit
def first_tap(phase, STRIDE: tl.constexpr, GCD: tl.constexpr, MODINV: tl.constexpr):
    """Return the smallest k with k * dilation = phase (modulo stride), for a phase that GCD divides.

    GCD is gcd(stride, dilation), MODINV the inverse of dilation / GCD modulo stride / GCD.
    """
    return ((phase // GCD) * MODINV) % (STRIDE // GCD)


@triton.jit
def along_axis(
    p, phase,                                          # place in its stride phase, pixels; the phase
    KERNEL: tl.constexpr, STRIDE: tl.constexpr,        # of the axis, taps and pixels
    PADDING: tl.constexpr, DILATION: tl.constexpr,     # of the axis, pixels
    GCD: tl.constexpr, MODINV: tl.constexpr,           # see `first_tap`
    GRAD_INPUT: tl.constexpr,                          # as in the kernels
):  # fmt: skip
    """Return of a pixel of `out`, along an axis: its place, the place in `src` of its first tap, that tap, how many.

    Taps follow each other at every (STRIDE / GCD)-th with GRAD_INPUT, at every one otherwise.
    """
    if GRAD_INPUT:
        first = (phase + (STRIDE - PADDING % STRIDE)) % STRIDE
        tap = first_tap(phase, STRIDE, GCD, MODINV)
        taps = tl.where(phase % GCD == 0, tl.cdiv(tl.maximum(KERNEL - tap, 0), STRIDE // GCD), 0)
        # Exact for the first tap: `first_tap` makes the difference a multiple of the stride where there are taps.
        return first + p * STRIDE, p + (first + PADDING - tap * DILATION) // STRIDE, tap, taps
    else:
        return p, p * STRIDE - PADDING, 0, KERNEL


@triton.jit(do_not_specialize=SIZES)
def gather_gemm(
    src, weight, bias, out,                            # tensors: x, w, bias, y; with GRAD_INPUT gy, w, anything, gx
    batch, phase_h, phase_w,                           # samples; size of the largest stride phase of `out`, pixels
    out_h, out_w, src_h, src_w,                        # sizes of `out` and `src`, pixels
    src_channels, out_channels,                        # channels of a group in `src` and `out`
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    weight_g, weight_o, weight_c, weight_y, weight_x,  # of `weight`: group, channel of `out`, of `src`, tap; elements
    out_n, out_c, out_y, out_x,                        # of `out`, elements
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
    UPCAST: tl.constexpr,                              # whether operands are widened to fp32 before the product
    PRECISION: tl.constexpr,                           # of the products: "ieee" or "tf32"
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,      # tile: pixels, channels of `out`
    BLOCK_K: tl.constexpr,                             # step of the reduction, channels of `src`
):  # fmt: skip
    """Compute the forward pass, or with GRAD_INPUT the gradient of the input.

        y[b, g, o, oy, ox] = bias[g, o] + sum over c, ky, kx of
            w[g, o, c, ky, kx] * x[b, g, c, oy SH - PH + ky DH, ox SW - PW + kx DW]
        gx[b, g, c, iy, ix] = sum over o, and over the ky, kx for which both divisions are whole, of
            w[g, o, c, ky, kx] * gy[b, g, o, (iy + PH - ky DH) / SH, (ix + PW - kx DW) / SW]

    A GEMM of (pixels of `out`) x (channels of `out`), reduced over (taps x channels of `src`). The gradient of the
    input falls apart into SH x SW stride phases: pixels with the same (iy + PH) modulo SH meet the same taps, every
    (SH / GCD_H)-th from `first_tap` on, and read rows of `src` that are DH / GCD_H apart; so do columns. Only these
    taps are visited. Grid: tiles of a phase; groups x phases.
    """
    tiles_n = tl.cdiv(out_channels, BLOCK_N)
    m = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    px = m % phase_w
    row = m // phase_w
    py = row % phase_h
    b = row // phase_h
    group = tl.program_id(1)
    phase_y = 0
    phase_x = 0
    if GRAD_INPUT:
        phase_y = (group // SW) % SH
        phase_x = group % SW
        group = group // (SH * SW)
    # y, x: the pixel of `src` that the first tap reads, (iy, ix) of the formulas; with GRAD_INPUT (oy, ox).
    out_row, y, ky, taps_y = along_axis(py, phase_y, KH, SH, PH, DH, GCD_H, MODINV_H, GRAD_INPUT)
    out_column, x, kx, taps_x = along_axis(px, phase_x, KW, SW, PW, DW, GCD_W, MODINV_W, GRAD_INPUT)
    SRC_STEP_Y: tl.constexpr = -(DH // GCD_H) if GRAD_INPUT else DH
    SRC_STEP_X: tl.constexpr = -(DW // GCD_W) if GRAD_INPUT else DW
    TAP_STEP_Y: tl.constexpr = SH // GCD_H if GRAD_INPUT else 1
    TAP_STEP_X: tl.constexpr = SW // GCD_W if GRAD_INPUT else 1
    pixel_mask = (b < batch) & (out_row < out_h) & (out_column < out_w)
    if INT64:
        b = b.to(tl.int64)
    src += group * src_channels * src_c
    weight += group * weight_g + ky * weight_y + kx * weight_x
    src_pixel = b * src_n + y * src_y + x * src_x
    channel_mask = n < out_channels
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # One loop over taps and channels: Triton pipelines the innermost loop alone.
    ty = 0
    tx = 0
    c0 = 0
    for _ in range(taps_y * taps_x * tl.cdiv(src_channels, BLOCK_K)):
        iy = y + ty * SRC_STEP_Y
        ix = x + tx * SRC_STEP_X
        src_mask = pixel_mask & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
        c = c0 + tl.arange(0, BLOCK_K)
        src_tap = src_pixel + (ty * SRC_STEP_Y * src_y + tx * SRC_STEP_X * src_x)
        values = tl.load(
            src + src_tap[:, None] + (c * src_c)[None, :],
            mask=src_mask[:, None] & (c < src_channels)[None, :],
            other=0.0,
        )
        taps = tl.load(
            weight
            + (ty * TAP_STEP_Y * weight_y + tx * TAP_STEP_X * weight_x)
            + (c * weight_c)[:, None]
            + (n * weight_o)[None, :],
            mask=(c < src_channels)[:, None] & channel_mask[None, :],
            other=0.0,
        )
        if UPCAST:
            values = values.to(tl.float32)
            taps = taps.to(tl.float32)
        acc = tl.dot(values, taps, acc, input_precision=PRECISION)
        c0 += BLOCK_K
        next_tap = c0 >= src_channels
        c0 = tl.where(next_tap, 0, c0)
        tx = tl.where(next_tap, tx + 1, tx)
        next_row = tx >= taps_x
        tx = tl.where(next_row, 0, tx)
        ty = tl.where(next_row, ty + 1, ty)
    if BIAS:
        acc += tl.load(bias + group * out_channels + n, mask=channel_mask, other=0.0).to(tl.float32)[None, :]
    acc = activated(acc, ACTIVATION, SLOPE, EXACT)
    out += group * out_channels * out_c
    pointers = out + (b * out_n + out_row * out_y + out_column * out_x)[:, None] + (n * out_c)[None, :]
    tl.store(pointers, acc.to(out.dtype.element_ty), mask=pixel_mask[:, None] & channel_mask[None, :])


@triton.jit(do_not_specialize=SIZES)
def flat_gemm(
    src, weight, bias, out,                            # tensors: x, w, bias (anything where BIAS is off), y
    batch, out_h, out_w, src_h, src_w,                 # samples; sizes of `out` and `src`, pixels
    out_channels,                                      # channels of a group in `out`
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    weight_g, weight_o, weight_c, weight_y, weight_x,  # of `weight`: group, output and input channel, tap; elements
    out_n, out_c, out_y, out_x,                        # of `out`, elements
    C: tl.constexpr,                                   # channels of a group in `src`
    KH: tl.constexpr, KW: tl.constexpr,                # size of the kernel, taps
    SH: tl.constexpr, SW: tl.constexpr,                # stride of the convolution, pixels
    PH: tl.constexpr, PW: tl.constexpr,                # padding, pixels
    DH: tl.constexpr, DW: tl.constexpr,                # dilation, pixels
    BIAS: tl.constexpr,                                # whether `bias` is added
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # of the result, see `activated`; "identity" leaves it as it is
    EXACT: tl.constexpr,                               # whether the activation divides exactly
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    UPCAST: tl.constexpr,                              # whether operands are widened to fp32 before the product
    PRECISION: tl.constexpr,                           # of the products: "ieee" or "tf32"
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,      # tile: pixels, output channels
    BLOCK_K: tl.constexpr,                             # step of the reduction, taps x input channels
):  # fmt: skip
    """Compute the forward pass for few input channels, such as an image's: taps and channels are one dimension.

        y[b, g, o, oy, ox] = bias[g, o] + sum over k = (ky KW + kx) C + c of
            w[g, o, c, ky, kx] * x[b, g, c, oy SH - PH + ky DH, ox SW - PW + kx DW]

    A GEMM of (pixels) x (output channels), reduced over (taps x input channels). Grid: tiles; groups.
    """
    tiles_n = tl.cdiv(out_channels, BLOCK_N)
    m = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    ox = m % out_w
    row = m // out_w
    oy = row % out_h
    b = row // out_h
    group = tl.program_id(1)
    pixel_mask = b < batch
    channel_mask = n < out_channels
    y = oy * SH - PH
    x = ox * SW - PW
    if INT64:
        b = b.to(tl.int64)
    src += group * C * src_c
    src_pixel = b * src_n + y * src_y + x * src_x
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, KH * KW * C, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        c = k % C
        kx = (k // C) % KW
        ky = k // (C * KW)
        iy = y[:, None] + (ky * DH)[None, :]
        ix = x[:, None] + (kx * DW)[None, :]
        src_mask = (
            pixel_mask[:, None] & (k < KH * KW * C)[None, :] & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
        )
        values = tl.load(
            src + src_pixel[:, None] + (c * src_c + ky * DH * src_y + kx * DW * src_x)[None, :],
            mask=src_mask,
            other=0.0,
        )
        taps = tl.load(
            weight
            + group * weight_g
            + (c * weight_c + ky * weight_y + kx * weight_x)[:, None]
            + (n * weight_o)[None, :],
            mask=(k < KH * KW * C)[:, None] & channel_mask[None, :],
            other=0.0,
        )
        if UPCAST:
            values = values.to(tl.float32)
            taps = taps.to(tl.float32)
        acc = tl.dot(values, taps, acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + group * out_channels + n, mask=channel_mask, other=0.0).to(tl.float32)[None, :]
    acc = activated(acc, ACTIVATION, SLOPE, EXACT)
    out += group * out_channels * out_c
    pointers = out + (b * out_n + oy * out_y + ox * out_x)[:, None] + (n * out_c)[None, :]
    tl.store(pointers, acc.to(out.dtype.element_ty), mask=pixel_mask[:, None] & channel_mask[None, :])


@triton.jit(do_not_specialize=["channels", "pixels"])
def transpose(
    src, out,                                          # tensors: contiguous NCHW, contiguous NHWC
    channels, pixels,                                  # channels, and pixels of a sample
    BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr,      # tile: channels, pixels
):  # fmt: skip
    """Copy NCHW into channels_last: out[b, p, c] = src[b, c, p]. Grid: tiles of channels; of pixels; samples."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    p = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    sample = tl.program_id(2).to(tl.int64) * channels * pixels
    mask = (c < channels)[:, None] & (p < pixels)[None, :]
    values = tl.load(src + sample + (c * pixels)[:, None] + p[None, :], mask=mask)
    tl.store(out + sample + c[:, None] + (p * channels)[None, :], values, mask=mask)
