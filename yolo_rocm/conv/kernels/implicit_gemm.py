"""Implicit GEMMs in Triton: forward and gradient of the input.

No column buffer: an address is computed for each tap of the kernel, in the loop.
All tensors come with their strides, so that NCHW and channels_last are served as they lie in memory. Sums are fp32.
Constants are written in capitals; `B..` are the sizes of a tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Sizes that only bound loops or masks: a kernel per value would buy nothing and cost a compilation each.
_SIZES = ["batch", "rows_h", "rows_w", "out_h", "out_w", "src_h", "src_w"]


@triton.jit
def _first_tap(phase, STRIDE: tl.constexpr, COMMON: tl.constexpr, INVERSE: tl.constexpr):
    """Return the first kernel position k with k * dilation = phase (modulo stride), for `COMMON` = gcd of the two."""
    return ((phase // COMMON) * INVERSE) % (STRIDE // COMMON)


@triton.jit(do_not_specialize=_SIZES)
def gather_gemm(
    src,
    weight,
    bias,
    out,
    batch,
    rows_h,
    rows_w,
    out_h,
    out_w,
    src_h,
    src_w,
    channels,
    outs,
    src_n,
    src_c,
    src_y,
    src_x,
    weight_g,
    weight_o,
    weight_c,
    weight_y,
    weight_x,
    out_n,
    out_c,
    out_y,
    out_x,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    PH: tl.constexpr,
    PW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    COMMON_H: tl.constexpr,
    COMMON_W: tl.constexpr,
    INVERSE_H: tl.constexpr,
    INVERSE_W: tl.constexpr,
    BACK: tl.constexpr,
    BIAS: tl.constexpr,
    WIDE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Compute the forward pass, or with BACK the gradient of the input, as (pixels x channels) tiles.

    The gradient of the input falls apart into stride x stride phases: pixels whose coordinate plus padding leaves the
    same rest meet the same taps, and only those are visited. `batch * rows_h * rows_w` is the number of pixels of the
    largest phase.
    """
    tiles = tl.cdiv(outs, BN)
    m = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    qx = m % rows_w
    rest = m // rows_w
    qy = rest % rows_h
    b = rest // rows_h
    group = tl.program_id(1)
    if BACK:
        phase_y = (group // SW) % SH
        phase_x = group % SW
        group = group // (SH * SW)
        first_y = (phase_y + (SH - PH % SH)) % SH
        first_x = (phase_x + (SW - PW % SW)) % SW
        ry = first_y + qy * SH
        rx = first_x + qx * SW
        ky = _first_tap(phase_y, SH, COMMON_H, INVERSE_H)
        kx = _first_tap(phase_x, SW, COMMON_W, INVERSE_W)
        taps_y = tl.where(phase_y % COMMON_H == 0, tl.cdiv(tl.maximum(KH - ky, 0), SH // COMMON_H), 0)
        taps_x = tl.where(phase_x % COMMON_W == 0, tl.cdiv(tl.maximum(KW - kx, 0), SW // COMMON_W), 0)
        y = qy + (first_y + PH - ky * DH) // SH
        x = qx + (first_x + PW - kx * DW) // SW
        STEP_Y: tl.constexpr = -(DH // COMMON_H)
        STEP_X: tl.constexpr = -(DW // COMMON_W)
        NEXT_Y: tl.constexpr = SH // COMMON_H
        NEXT_X: tl.constexpr = SW // COMMON_W
    else:
        ry = qy
        rx = qx
        ky = 0
        kx = 0
        taps_y = KH
        taps_x = KW
        y = qy * SH - PH
        x = qx * SW - PW
        STEP_Y: tl.constexpr = DH
        STEP_X: tl.constexpr = DW
        NEXT_Y: tl.constexpr = 1
        NEXT_X: tl.constexpr = 1
    inside = (b < batch) & (ry < out_h) & (rx < out_w)
    if WIDE:
        b = b.to(tl.int64)
    src += group * channels * src_c
    weight += group * weight_g + ky * weight_y + kx * weight_x
    row = b * src_n + y * src_y + x * src_x
    known = n < outs
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    ty = 0
    tx = 0
    c0 = 0
    for _ in range(taps_y * taps_x * tl.cdiv(channels, BK)):
        yy = y + ty * STEP_Y
        xx = x + tx * STEP_X
        ok = inside & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
        c = c0 + tl.arange(0, BK)
        at = row + (ty * STEP_Y * src_y + tx * STEP_X * src_x)
        values = tl.load(
            src + at[:, None] + (c * src_c)[None, :], mask=ok[:, None] & (c < channels)[None, :], other=0.0
        )
        taps = tl.load(
            weight
            + (ty * NEXT_Y * weight_y + tx * NEXT_X * weight_x)
            + (c * weight_c)[:, None]
            + (n * weight_o)[None, :],
            mask=(c < channels)[:, None] & known[None, :],
            other=0.0,
        )
        if UPCAST:
            values = values.to(tl.float32)
            taps = taps.to(tl.float32)
        acc = tl.dot(values, taps, acc, input_precision=PRECISION)
        c0 += BK
        full = c0 >= channels
        c0 = tl.where(full, 0, c0)
        tx = tl.where(full, tx + 1, tx)
        end = tx >= taps_x
        tx = tl.where(end, 0, tx)
        ty = tl.where(end, ty + 1, ty)
    if BIAS:
        acc += tl.load(bias + group * outs + n, mask=known, other=0.0).to(tl.float32)[None, :]
    out += group * outs * out_c
    where = out + (b * out_n + ry * out_y + rx * out_x)[:, None] + (n * out_c)[None, :]
    tl.store(where, acc.to(out.dtype.element_ty), mask=inside[:, None] & known[None, :])


@triton.jit(do_not_specialize=_SIZES)
def flat_gemm(
    src,
    weight,
    bias,
    out,
    batch,
    out_h,
    out_w,
    src_h,
    src_w,
    outs,
    src_n,
    src_c,
    src_y,
    src_x,
    weight_g,
    weight_o,
    weight_c,
    weight_y,
    weight_x,
    out_n,
    out_c,
    out_y,
    out_x,
    C: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    PH: tl.constexpr,
    PW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    BIAS: tl.constexpr,
    WIDE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Compute the forward pass with taps and channels in one inner dimension, for few channels such as an image's."""
    tiles = tl.cdiv(outs, BN)
    m = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    ox = m % out_w
    rest = m // out_w
    oy = rest % out_h
    b = rest // out_h
    group = tl.program_id(1)
    inside = b < batch
    known = n < outs
    y = oy * SH - PH
    x = ox * SW - PW
    if WIDE:
        b = b.to(tl.int64)
    src += group * C * src_c
    row = b * src_n + y * src_y + x * src_x
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, KH * KW * C, BK):
        k = k0 + tl.arange(0, BK)
        c = k % C
        kx = (k // C) % KW
        ky = k // (C * KW)
        yy = y[:, None] + (ky * DH)[None, :]
        xx = x[:, None] + (kx * DW)[None, :]
        ok = inside[:, None] & (k < KH * KW * C)[None, :] & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
        values = tl.load(
            src + row[:, None] + (c * src_c + ky * DH * src_y + kx * DW * src_x)[None, :], mask=ok, other=0.0
        )
        taps = tl.load(
            weight
            + group * weight_g
            + (c * weight_c + ky * weight_y + kx * weight_x)[:, None]
            + (n * weight_o)[None, :],
            mask=(k < KH * KW * C)[:, None] & known[None, :],
            other=0.0,
        )
        if UPCAST:
            values = values.to(tl.float32)
            taps = taps.to(tl.float32)
        acc = tl.dot(values, taps, acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + group * outs + n, mask=known, other=0.0).to(tl.float32)[None, :]
    out += group * outs * out_c
    where = out + (b * out_n + oy * out_y + ox * out_x)[:, None] + (n * out_c)[None, :]
    tl.store(where, acc.to(out.dtype.element_ty), mask=inside[:, None] & known[None, :])


@triton.jit(do_not_specialize=["channels", "pixels"])
def turn(src, out, channels, pixels, BC: tl.constexpr, BP: tl.constexpr):
    """Copy (samples, channels, pixels) into (samples, pixels, channels)."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    sample = tl.program_id(2).to(tl.int64) * channels * pixels
    mask = (c < channels)[:, None] & (p < pixels)[None, :]
    values = tl.load(src + sample + (c * pixels)[:, None] + p[None, :], mask=mask)
    tl.store(out + sample + c[:, None] + (p * channels)[None, :], values, mask=mask)
