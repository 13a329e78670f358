"""The gradient of the weight in Triton: split-K GEMMs over pixels, whose partial sums are added in a fixed order.

Formulas and signatures as in `implicit_gemm`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .implicit_gemm import SIZES


@triton.jit
def first_step(begin, out_h, out_w, STEP_W: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return sample, row and column where a split begins; 0 where pixels are taken in order."""
    b = 0
    y = 0
    x = 0
    if STEP_W:
        step = begin // BLOCK_K
        columns = tl.cdiv(out_w, STEP_W)
        rows = tl.cdiv(out_h, BLOCK_K // STEP_W)
        b = step // columns // rows
        y = step // columns % rows * (BLOCK_K // STEP_W)
        x = step % columns * STEP_W
    return b, y, x


@triton.jit
def next_step(b, y, x, out_h, out_w, STEP_W: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return sample, row and column of the rectangle after this one: to the right, then down, then the next sample."""
    x += STEP_W
    y = tl.where(x < out_w, y, y + BLOCK_K // STEP_W)
    x = tl.where(x < out_w, x, 0)
    b = tl.where(y < out_h, b, b + 1)
    y = tl.where(y < out_h, y, 0)
    return b, y, x


@triton.jit
def pixels_of_step(
    start, stop,                                       # first pixel of the step, and of the next split
    step_y, step_x,                                    # row and column of a step that is a rectangle, pixels
    out_h, out_w,                                      # size of the output, pixels
    STEP_W: tl.constexpr, EVEN: tl.constexpr,          # as in the kernels
    INT64: tl.constexpr, BLOCK_K: tl.constexpr,        # as in the kernels
):  # fmt: skip
    """Return sample, row and column of each pixel of a step, from where the step is, and whether the pixel counts.

    In a rectangle they are the same in every step: all that is computed of them is computed before the loop, and the
    compiler knows that pixels of a row follow each other. Pixels in order cost two divisions each, in every step.
    """
    k = tl.arange(0, BLOCK_K)
    if STEP_W:
        b = 0
        y = k // STEP_W
        x = k % STEP_W
        if EVEN:
            mask = k < BLOCK_K
        else:
            mask = (step_y + y < out_h) & (step_x + x < out_w)
    else:
        p = start + k
        mask = p < stop
        x = p % out_w
        row = p // out_w
        y = row % out_h
        b = row // out_h
        if INT64:
            b = b.to(tl.int64)
    return b, y, x, mask


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
    STEP_W: tl.constexpr,                              # columns of a step that is a rectangle; 0: pixels in order
    EVEN: tl.constexpr,                                # whether rectangles cover the output and nothing else
    UNIT: tl.constexpr,                                # divides `out_w` and the strides of `grad`, last excepted
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
    if UNIT > 1:  # the compiler learns it from these: Triton tells it of multiples of 16 alone
        out_w = out_w // UNIT * UNIT
        grad_n = grad_n // UNIT * UNIT
        grad_c = grad_c // UNIT * UNIT
        grad_y = grad_y // UNIT * UNIT
    begin = tl.program_id(2) * split_pixels
    stop = tl.minimum(begin + split_pixels, pixels)
    step_b, step_y, step_x = first_step(begin, out_h, out_w, STEP_W, BLOCK_K)
    if INT64 and STEP_W:
        step_b = step_b.to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(begin, stop, BLOCK_K):
        b, oy, ox, pixel_mask = pixels_of_step(start, stop, step_y, step_x, out_h, out_w, STEP_W, EVEN, INT64, BLOCK_K)
        gradients = tl.load(
            grad
            + (step_b * grad_n + step_y * grad_y + step_x * grad_x)
            + (o * grad_c)[:, None]
            + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < out_channels)[:, None] & pixel_mask[None, :],
            other=0.0,
        )
        top = step_y * SH
        left = step_x * SW
        first = src + (step_b * src_n + top * src_y + left * src_x)
        y = oy * SH - PH
        x = ox * SW - PW
        if FLAT:
            iy = top + y[:, None] + dy[None, :]
            ix = left + x[:, None] + dx[None, :]
            mask = pixel_mask[:, None] & column_mask[None, :] & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
            offsets = (b * src_n + y * src_y + x * src_x)[:, None] + (dy * src_y + dx * src_x + c * src_c)[None, :]
        else:
            y += dy
            x += dx
            iy = top + y
            ix = left + x
            src_mask = pixel_mask & (iy >= 0) & (iy < src_h) & (ix >= 0) & (ix < src_w)
            mask = src_mask[:, None] & column_mask[None, :]
            offsets = (b * src_n + y * src_y + x * src_x)[:, None] + (c * src_c)[None, :]
        values = tl.load(first + offsets, mask=mask, other=0.0)
        if UPCAST:
            gradients = gradients.to(tl.float32)
            values = values.to(tl.float32)
        acc = tl.dot(gradients, values, acc, input_precision=PRECISION)
        if STEP_W:
            step_b, step_y, step_x = next_step(step_b, step_y, step_x, out_h, out_w, STEP_W, BLOCK_K)
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
    ROUND: tl.constexpr,                               # to fp16 (1) or bf16 (2) before `out`, which is wider; 0: no
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
    result = tl.sum(acc, axis=0)
    if ROUND == 1:
        result = result.to(tl.float16)
    if ROUND == 2:
        result = result.to(tl.bfloat16)
    tl.store(pointers, result.to(out.dtype.element_ty), mask=e < total)


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
    STEP_W: tl.constexpr,                              # columns of a step that is a rectangle; 0: pixels in order
    EVEN: tl.constexpr,                                # whether rectangles cover the output and nothing else
    UNIT: tl.constexpr,                                # divides `out_w` and the strides of `grad`, last excepted
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
    if UNIT > 1:  # the compiler learns it from these: Triton tells it of multiples of 16 alone
        out_w = out_w // UNIT * UNIT
        grad_n = grad_n // UNIT * UNIT
        grad_c = grad_c // UNIT * UNIT
        grad_y = grad_y // UNIT * UNIT
    begin = tl.program_id(2) * split_pixels
    stop = tl.minimum(begin + split_pixels, pixels)
    step_b, step_y, step_x = first_step(begin, out_h, out_w, STEP_W, BLOCK_K)
    if INT64 and STEP_W:
        step_b = step_b.to(tl.int64)
    acc0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(begin, stop, BLOCK_K):
        b, oy, ox, pixel_mask = pixels_of_step(start, stop, step_y, step_x, out_h, out_w, STEP_W, EVEN, INT64, BLOCK_K)
        gradients = tl.load(
            grad
            + (step_b * grad_n + step_y * grad_y + step_x * grad_x)
            + (o * grad_c)[:, None]
            + (b * grad_n + oy * grad_y + ox * grad_x)[None, :],
            mask=(o < out_channels)[:, None] & pixel_mask[None, :],
            other=0.0,
        )
        top = step_y * SH
        left = step_x * SW
        first = src + (step_b * src_n + top * src_y + left * src_x)
        y = oy * SH - PH + ky * DH
        x = ox * SW - PW
        iy = top + y
        ix = left + x
        row_mask = pixel_mask & (iy >= 0) & (iy < src_h)
        offsets = (b * src_n + y * src_y + x * src_x)[:, None] + (c * src_c)[None, :]
        src_mask = row_mask & (ix >= 0) & (ix < src_w)
        values0 = tl.load(first + offsets, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        src_mask = row_mask & (ix + DW >= 0) & (ix + DW < src_w)
        values1 = tl.load(first + offsets + DW * src_x, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        src_mask = row_mask & (ix + 2 * DW >= 0) & (ix + 2 * DW < src_w)
        values2 = tl.load(first + offsets + 2 * DW * src_x, mask=src_mask[:, None] & channel_mask[None, :], other=0.0)
        if UPCAST:
            gradients = gradients.to(tl.float32)
            values0 = values0.to(tl.float32)
            values1 = values1.to(tl.float32)
            values2 = values2.to(tl.float32)
        acc0 = tl.dot(gradients, values0, acc0, input_precision=PRECISION)
        acc1 = tl.dot(gradients, values1, acc1, input_precision=PRECISION)
        acc2 = tl.dot(gradients, values2, acc2, input_precision=PRECISION)
        if STEP_W:
            step_b, step_y, step_x = next_step(step_b, step_y, step_x, out_h, out_w, STEP_W, BLOCK_K)
    width = KH * 3 * in_channels
    slab = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + group) * out_channels * width
    pointers = partial + slab + (o * width)[:, None] + (ky * 3 * in_channels + c)[None, :]
    mask = (o < out_channels)[:, None] & channel_mask[None, :]
    tl.store(pointers, acc0, mask=mask)
    tl.store(pointers + in_channels, acc1, mask=mask)
    tl.store(pointers + 2 * in_channels, acc2, mask=mask)
