"""Direct kernels for depthwise convolutions: a layer that moves bytes, with nothing to multiply matrices for.

A tile is (pixels x channels): many pixels of a few channels in NCHW, few pixels of many channels in channels_last.
`MULTIPLE` output channels belong to each input channel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .implicit_gemm import _SIZES, _first_tap


@triton.jit(do_not_specialize=_SIZES)
def depthwise(
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
    src_n,
    src_c,
    src_y,
    src_x,
    weight_o,
    weight_y,
    weight_x,
    out_n,
    out_c,
    out_y,
    out_x,
    MULTIPLE: tl.constexpr,
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
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute the forward pass, or with BACK the gradient of the input, phase by phase as in `gather_gemm`.

    `channels` are those of `out`.
    """
    tiles = tl.cdiv(rows_h * rows_w, BP)
    p = (tl.program_id(0) % tiles) * BP + tl.arange(0, BP)
    b = tl.program_id(0) // tiles
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    qx = p % rows_w
    qy = p // rows_w
    if BACK:
        phase = tl.program_id(2)
        phase_y = phase // SW
        phase_x = phase % SW
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
        OTHERS: tl.constexpr = MULTIPLE
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
        OTHERS: tl.constexpr = 1
    inside = (qy < rows_h) & (ry < out_h) & (rx < out_w)
    known = c < channels
    if WIDE:
        b = b.to(tl.int64)
    acc = tl.zeros((BP, BC), dtype=tl.float32)
    for other in range(OTHERS):
        if BACK:
            source = c * MULTIPLE + other
            row = source
        else:
            source = c // MULTIPLE
            row = c
        # The way from one tap to the next is the same for all pixels: addresses are computed once.
        first = src + (y * src_y + x * src_x)[:, None] + (b * src_n + source * src_c)[None, :]
        for ty in range(taps_y):
            for tx in range(taps_x):
                yy = y + ty * STEP_Y
                xx = x + tx * STEP_X
                ok = inside & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
                at = first + (ty * STEP_Y * src_y + tx * STEP_X * src_x)
                values = tl.load(at, mask=ok[:, None] & known[None, :], other=0.0).to(tl.float32)
                tap = (ky + ty * NEXT_Y) * weight_y + (kx + tx * NEXT_X) * weight_x
                scale = tl.load(weight + row * weight_o + tap, mask=known, other=0.0).to(tl.float32)
                acc = tl.fma(values, scale[None, :], acc)
    if BIAS:
        acc += tl.load(bias + c, mask=known, other=0.0).to(tl.float32)[None, :]
    where = out + (ry * out_y + rx * out_x)[:, None] + (b * out_n + c * out_c)[None, :]
    tl.store(where, acc.to(out.dtype.element_ty), mask=inside[:, None] & known[None, :])


@triton.jit(do_not_specialize=[*_SIZES, "pixels", "share"])
def depthwise_weight(
    src,
    grad,
    partial,
    pixels,
    share,
    out_h,
    out_w,
    src_h,
    src_w,
    channels,
    src_n,
    src_c,
    src_y,
    src_x,
    grad_n,
    grad_c,
    grad_y,
    grad_x,
    MULTIPLE: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    PH: tl.constexpr,
    PW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    WIDE: tl.constexpr,
    BP: tl.constexpr,
    BT: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute a share of the gradient of the weight: (shares, channels of `grad`, taps), summed by `sum_shares`."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    tap = tl.arange(0, BT)
    known = c < channels
    begin = tl.program_id(1) * share
    stop = tl.minimum(begin + share, pixels)
    acc = tl.zeros((BT, BC), dtype=tl.float32)
    for start in range(begin, stop, BP):
        p = start + tl.arange(0, BP)
        here = p < stop
        ox = p % out_w
        rest = p // out_w
        oy = rest % out_h
        b = rest // out_h
        if WIDE:
            b = b.to(tl.int64)
        g_at = (b * grad_n + oy * grad_y + ox * grad_x)[:, None] + (c * grad_c)[None, :]
        g = tl.load(grad + g_at, mask=here[:, None] & known[None, :], other=0.0).to(tl.float32)
        y = oy * SH - PH
        x = ox * SW - PW
        first = src + (b * src_n + y * src_y + x * src_x)[:, None] + ((c // MULTIPLE) * src_c)[None, :]
        for ky in range(KH):
            for kx in range(KW):
                yy = y + ky * DH
                xx = x + kx * DW
                ok = here & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
                at = first + (ky * DH * src_y + kx * DW * src_x)
                values = tl.load(at, mask=ok[:, None] & known[None, :], other=0.0).to(tl.float32)
                found = tl.sum(values * g, axis=0)
                acc += tl.where((tap == ky * KW + kx)[:, None], found[None, :], 0.0)
    where = partial + (tl.program_id(1).to(tl.int64) * channels + c)[None, :] * (KH * KW) + tap[:, None]
    tl.store(where, acc, mask=(tap < KH * KW)[:, None] & known[None, :])
