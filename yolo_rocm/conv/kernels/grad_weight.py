"""The gradient of the weight in Triton: split-K GEMMs over pixels, whose partial sums are added in a fixed order.

Formulas and signatures as in `implicit_gemm`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .implicit_gemm import SIZES


@triton.jit(do_not_specialize=[*SIZES, "pixels", "split_pixels"])
def weight_gemm(
    src, grad, partial,                                # tensors: x, gy, partial sums in fp32
    pixels, split_pixels,                              # output pixels of the batch, and of one split
    out_h, out_w, src_h, src_w,                        # sizes of `grad` and `src`, pixels
    in_channels, out_channels,                         # channels of a group
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    grad_n, grad_c, grad_y, grad_x,                    # of `grad`, elements
    KH: tl.constexpr, KW: tl.constexpr,                # size of the kernel, taps
    SH: tl.constexpr, SW: tl.constexpr,                # stride of the convolution, pixels
    PH: tl.constexpr, PW: tl.constexpr,                # padding, pixels
    DH: tl.constexpr, DW: tl.constexpr,                # dilation, pixels
    FLAT: tl.constexpr,                                # a tile covers channels of several taps, not of one
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    UPCAST: tl.constexpr,                              # whether operands are widened to fp32 before the product
    PRECISION: tl.constexpr,                           # of the products: "ieee" or "tf32"
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,      # tile: output channels, taps x input channels
    BLOCK_K: tl.constexpr,                             # step of the reduction, pixels
):  # fmt: skip
    """Compute partial sums of the gradient of the weight, for `sum_partials` to add.

        partial[s, g, o, ky, kx, c] = sum over the output pixels (b, oy, ox) of split s of
            gy[b, g, o, oy, ox] * x[b, g, c, oy SH - PH + ky DH, ox SW - PW + kx DW]

    A GEMM of (output channels) x (taps x input channels), reduced over pixels. Grid: tiles; groups; splits.
    """
    if FLAT:
        tiles_n = tl.cdiv(KH * KW * in_channels, BLOCK_N)
    else:
        tiles_n = KH * KW * tl.cdiv(in_channels, BLOCK_N)
    o = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    tile = tl.program_id(0) % tiles_n
    if FLAT:
        n = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        c = n % in_channels
        tap = n // in_channels
        column_mask = tap < KH * KW
    else:
        tap_tiles = tl.cdiv(in_channels, BLOCK_N)
        c = (tile % tap_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
        tap = tile // tap_tiles
        n = tap * in_channels + c
        column_mask = c < in_channels
    dy = (tap // KW) * DH
    dx = (tap % KW) * DW
    group = tl.program_id(1)
    src += group * in_channels * src_c
    grad += group * out_channels * grad_c
    begin = tl.program_id(2) * split_pixels
    stop = tl.minimum(begin + split_pixels, pixels)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(begin, stop, BLOCK_K):
        p = start + tl.arange(0, BLOCK_K)
        pixel_mask = p < stop
        ox = p % out_w
        row = p // out_w
        oy = row % out_h
        b = row // out_h
        y = oy * SH - PH
        x = ox * SW - PW
        if INT64:
            b = b.to(tl.int64)
        gradients = tl.load(
            grad + (o * grad_c)[:, None] + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < out_channels)[:, None] & pixel_mask[None, :],
            other=0.0,
        )
        if FLAT:
            iy = y[:, None] + dy[None, :]
            ix = x[:, None] + dx[None, :]
            mask = pixel_mask[:, None] & column_mask[None, :] & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
            offsets = (b * src_n + y * src_y + x * src_x)[:, None] + (dy * src_y + dx * src_x + c * src_c)[None, :]
        else:
            iy = y + dy
            ix = x + dx
            src_mask = pixel_mask & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
            mask = src_mask[:, None] & column_mask[None, :]
            offsets = (b * src_n + iy * src_y + ix * src_x)[:, None] + (c * src_c)[None, :]
        values = tl.load(src + offsets, mask=mask, other=0.0)
        if UPCAST:
            gradients = gradients.to(tl.float32)
            values = values.to(tl.float32)
        acc = tl.dot(gradients, values, acc, input_precision=PRECISION)
    width = KH * KW * in_channels
    # All partial sums together may be more than 2**31 elements.
    slab = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + group) * out_channels * width
    pointers = partial + slab + (o * width)[:, None] + n[None, :]
    tl.store(pointers, acc, mask=(o < out_channels)[:, None] & column_mask[None, :])


@triton.jit(do_not_specialize=["splits", "total"])
def sum_partials(
    partial, out,                                      # tensors: partial sums, gradient of the weight
    splits, total,                                     # splits, and elements of the weight
    in_channels,                                       # channels of a group
    out_o, out_c, out_y, out_x,                        # strides of `out`: output and input channel, tap; elements
    KH: tl.constexpr, KW: tl.constexpr,                # size of the kernel, taps
    BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr,      # tile: splits, elements of the weight
):  # fmt: skip
    """Add partial sums, in the same order every time, into the layout of the weight.

    out[o, c, ky, kx] = sum over s of partial[s, o, ky, kx, c], for o of all groups. Grid: tiles of elements.
    """
    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    acc = tl.zeros((BLOCK_S, BLOCK_E), dtype=tl.float32)
    for start in range(0, splits, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        offsets = s.to(tl.int64)[:, None] * total + e[None, :]
        acc += tl.load(partial + offsets, mask=(s < splits)[:, None] & (e < total)[None, :], other=0.0)
    c = e % in_channels
    tap = (e // in_channels) % (KH * KW)
    o = e // (in_channels * KH * KW)
    pointers = out + o * out_o + c * out_c + (tap // KW) * out_y + (tap % KW) * out_x
    tl.store(pointers, tl.sum(acc, axis=0).to(out.dtype.element_ty), mask=e < total)


@triton.jit(do_not_specialize=[*SIZES, "pixels", "split_pixels"])
def weight_gemm_rows(
    src, grad, partial,                                # tensors: x, gy, partial sums in fp32
    pixels, split_pixels,                              # output pixels of the batch, and of one split
    out_h, out_w, src_h, src_w,                        # sizes of `grad` and `src`, pixels
    in_channels, out_channels,                         # channels of a group
    src_n, src_c, src_y, src_x,                        # strides of `src` along sample, channel, row, column, elements
    grad_n, grad_c, grad_y, grad_x,                    # of `grad`, elements
    KH: tl.constexpr,                                  # rows of the kernel; it is three taps wide
    SH: tl.constexpr, SW: tl.constexpr,                # stride of the convolution, pixels
    PH: tl.constexpr, PW: tl.constexpr,                # padding, pixels
    DH: tl.constexpr, DW: tl.constexpr,                # dilation, pixels
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    UPCAST: tl.constexpr,                              # whether operands are widened to fp32 before the product
    PRECISION: tl.constexpr,                           # of the products: "ieee" or "tf32"
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,      # tile: output channels, input channels
    BLOCK_K: tl.constexpr,                             # step of the reduction, pixels
):  # fmt: skip
    """Compute what `weight_gemm` does for KW = 3: a row of three taps for each gradient that is read.

        partial[s, g, o, ky, 0..2, c] = sum over the output pixels (b, oy, ox) of split s of
            gy[b, g, o, oy, ox] * x[b, g, c, oy SH - PH + ky DH, ox SW - PW + (0..2) DW]

    Three GEMMs of (output channels) x (input channels), reduced over pixels. Grid: tiles x KH; groups; splits.
    """
    tiles_n = tl.cdiv(in_channels, BLOCK_N)
    o = (tl.program_id(0) // (KH * tiles_n)) * BLOCK_M + tl.arange(0, BLOCK_M)
    ky = (tl.program_id(0) // tiles_n) % KH
    c = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel_mask = c < in_channels
    group = tl.program_id(1)
    src += group * in_channels * src_c
    grad += group * out_channels * grad_c
    begin = tl.program_id(2) * split_pixels
    stop = tl.minimum(begin + split_pixels, pixels)
    acc0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(begin, stop, BLOCK_K):
        p = start + tl.arange(0, BLOCK_K)
        pixel_mask = p < stop
        ox = p % out_w
        row = p // out_w
        oy = row % out_h
        b = row // out_h
        iy = oy * SH - PH + ky * DH
        ix = ox * SW - PW
        if INT64:
            b = b.to(tl.int64)
        gradients = tl.load(
            grad + (o * grad_c)[:, None] + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < out_channels)[:, None] & pixel_mask[None, :],
            other=0.0,
        )
        row_mask = pixel_mask & (iy >= 0) & (iy < src_h)
        offsets = (b * src_n + iy * src_y + ix * src_x)[:, None] + (c * src_c)[None, :]
        src_mask = row_mask & (ix >= 0) & (ix < src_w)
        values0 = tl.load(src + offsets, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        src_mask = row_mask & (ix + DW >= 0) & (ix + DW < src_w)
        values1 = tl.load(src + offsets + DW * src_x, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        src_mask = row_mask & (ix + 2 * DW >= 0) & (ix + 2 * DW < src_w)
        values2 = tl.load(src + offsets + 2 * DW * src_x, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        if UPCAST:
            gradients = gradients.to(tl.float32)
            values0 = values0.to(tl.float32)
            values1 = values1.to(tl.float32)
            values2 = values2.to(tl.float32)
        acc0 = tl.dot(gradients, values0, acc0, input_precision=PRECISION)
        acc1 = tl.dot(gradients, values1, acc1, input_precision=PRECISION)
        acc2 = tl.dot(gradients, values2, acc2, input_precision=PRECISION)
    width = KH * 3 * in_channels
    slab = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + group) * out_channels * width
    pointers = partial + slab + (o * width)[:, None] + (ky * 3 * in_channels + c)[None, :]
    mask = (o < out_channels)[:, None] & channel_mask[None, :]
    tl.store(pointers, acc0, mask=mask)
    tl.store(pointers + in_channels, acc1, mask=mask)
    tl.store(pointers + 2 * in_channels, acc2, mask=mask)
