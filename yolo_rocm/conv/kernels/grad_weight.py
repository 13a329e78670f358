"""The gradient of the weight in Triton: a GEMM over pixels, cut into shares that are added up in a fixed order."""

from __future__ import annotations

import triton
import triton.language as tl

from .implicit_gemm import _SIZES


@triton.jit(do_not_specialize=[*_SIZES, "pixels", "share"])
def weight_gemm(
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
    outs,
    src_n,
    src_c,
    src_y,
    src_x,
    grad_n,
    grad_c,
    grad_y,
    grad_x,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    PH: tl.constexpr,
    PW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    FLAT: tl.constexpr,
    WIDE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Compute a share of the gradient of the weight: the sum over `share` pixels, into a slice of `partial`.

    `partial` is (shares, outs, taps, channels) in fp32; `sum_shares` adds the slices in a fixed order. A tile covers
    several taps where FLAT, else channels of one tap.
    """
    if FLAT:
        tiles = tl.cdiv(KH * KW * channels, BN)
    else:
        tiles = KH * KW * tl.cdiv(channels, BN)
    o = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    tile = tl.program_id(0) % tiles
    if FLAT:
        n = tile * BN + tl.arange(0, BN)
        c = n % channels
        tap = n // channels
        known = tap < KH * KW
    else:
        each = tl.cdiv(channels, BN)
        c = (tile % each) * BN + tl.arange(0, BN)
        tap = tile // each
        n = tap * channels + c
        known = c < channels
    dy = (tap // KW) * DH
    dx = (tap % KW) * DW
    group = tl.program_id(1)
    src += group * channels * src_c
    grad += group * outs * grad_c
    begin = tl.program_id(2) * share
    stop = tl.minimum(begin + share, pixels)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(begin, stop, BK):
        p = start + tl.arange(0, BK)
        here = p < stop
        ox = p % out_w
        rest = p // out_w
        oy = rest % out_h
        b = rest // out_h
        y = oy * SH - PH
        x = ox * SW - PW
        if WIDE:
            b = b.to(tl.int64)
        left = tl.load(
            grad + (o * grad_c)[:, None] + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < outs)[:, None] & here[None, :],
            other=0.0,
        )
        if FLAT:
            yy = y[:, None] + dy[None, :]
            xx = x[:, None] + dx[None, :]
            ok = here[:, None] & known[None, :] & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
            at = (b * src_n + y * src_y + x * src_x)[:, None] + (dy * src_y + dx * src_x + c * src_c)[None, :]
        else:
            yy = y + dy
            xx = x + dx
            fine = here & (yy >= 0) & (yy < src_h) & (xx >= 0) & (xx < src_w)
            ok = fine[:, None] & known[None, :]
            at = (b * src_n + yy * src_y + xx * src_x)[:, None] + (c * src_c)[None, :]
        right = tl.load(src + at, mask=ok, other=0.0)
        if UPCAST:
            left = left.to(tl.float32)
            right = right.to(tl.float32)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    width = KH * KW * channels
    # (share, group, outs, taps x channels); a slice of all shares may be larger than 2**31 elements.
    slab = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + group) * outs * width
    where = partial + slab + (o * width)[:, None] + n[None, :]
    tl.store(where, acc, mask=(o < outs)[:, None] & known[None, :])


@triton.jit(do_not_specialize=["shares", "total"])
def sum_shares(
    partial,
    out,
    shares,
    total,
    channels,
    out_o,
    out_c,
    out_y,
    out_x,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BS: tl.constexpr,
    BE: tl.constexpr,
):
    """Add the slices of `partial`, in the same order every time, and lay the sum out like the weight."""
    e = tl.program_id(0) * BE + tl.arange(0, BE)
    acc = tl.zeros((BS, BE), dtype=tl.float32)
    for start in range(0, shares, BS):
        s = start + tl.arange(0, BS)
        at = s.to(tl.int64)[:, None] * total + e[None, :]
        acc += tl.load(partial + at, mask=(s < shares)[:, None] & (e < total)[None, :], other=0.0)
    c = e % channels
    tap = (e // channels) % (KH * KW)
    o = e // (channels * KH * KW)
    where = out + o * out_o + c * out_c + (tap // KW) * out_y + (tap % KW) * out_x
    tl.store(where, tl.sum(acc, axis=0).to(out.dtype.element_ty), mask=e < total)


@triton.jit(do_not_specialize=[*_SIZES, "pixels", "share"])
def weight_gemm_rows(
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
    outs,
    src_n,
    src_c,
    src_y,
    src_x,
    grad_n,
    grad_c,
    grad_y,
    grad_x,
    KH: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    PH: tl.constexpr,
    PW: tl.constexpr,
    DH: tl.constexpr,
    DW: tl.constexpr,
    WIDE: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Compute what `weight_gemm` does for kernels three wide, a row of three taps for each gradient that is read."""
    each = tl.cdiv(channels, BN)
    o = (tl.program_id(0) // (KH * each)) * BM + tl.arange(0, BM)
    ky = (tl.program_id(0) // each) % KH
    c = (tl.program_id(0) % each) * BN + tl.arange(0, BN)
    known = c < channels
    group = tl.program_id(1)
    src += group * channels * src_c
    grad += group * outs * grad_c
    begin = tl.program_id(2) * share
    stop = tl.minimum(begin + share, pixels)
    first = tl.zeros((BM, BN), dtype=tl.float32)
    second = tl.zeros((BM, BN), dtype=tl.float32)
    third = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(begin, stop, BK):
        p = start + tl.arange(0, BK)
        here = p < stop
        ox = p % out_w
        rest = p // out_w
        oy = rest % out_h
        b = rest // out_h
        y = oy * SH - PH + ky * DH
        x = ox * SW - PW
        if WIDE:
            b = b.to(tl.int64)
        left = tl.load(
            grad + (o * grad_c)[:, None] + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < outs)[:, None] & here[None, :],
            other=0.0,
        )
        fine = here & (y >= 0) & (y < src_h)
        at = (b * src_n + y * src_y + x * src_x)[:, None] + (c * src_c)[None, :]
        ok = fine & (x >= 0) & (x < src_w)
        right = tl.load(src + at, mask=ok[:, None] & known[None, :], other=0.0)
        ok = fine & (x + DW >= 0) & (x + DW < src_w)
        middle = tl.load(src + at + DW * src_x, mask=ok[:, None] & known[None, :], other=0.0)
        ok = fine & (x + 2 * DW >= 0) & (x + 2 * DW < src_w)
        last = tl.load(src + at + 2 * DW * src_x, mask=ok[:, None] & known[None, :], other=0.0)
        if UPCAST:
            left = left.to(tl.float32)
            right = right.to(tl.float32)
            middle = middle.to(tl.float32)
            last = last.to(tl.float32)
        first = tl.dot(left, right, first, input_precision=PRECISION)
        second = tl.dot(left, middle, second, input_precision=PRECISION)
        third = tl.dot(left, last, third, input_precision=PRECISION)
    width = KH * 3 * channels
    slab = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + group) * outs * width
    where = partial + slab + (o * width)[:, None] + (ky * 3 * channels + c)[None, :]
    mask = (o < outs)[:, None] & known[None, :]
    tl.store(where, first, mask=mask)
    tl.store(where + channels, second, mask=mask)
    tl.store(where + 2 * channels, third, mask=mask)
