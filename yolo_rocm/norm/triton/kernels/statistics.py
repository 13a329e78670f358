"""Mean and variance of each channel: partial statistics of many programs, and one program that combines a channel's.

A program adds up what its values differ from the mean of its first tile, and the squares of that. However large the
mean is and however small the variance, few digits cancel: the square of the distance between the means of a part and of
its first tile is at most as many variances as the part has tiles. Parts are combined by Chan, Golub and LeVeque's
formula, all of a channel at once, in an order that never changes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .values import of_channels, tile_of, values_before

SIZES = ["samples", "tiles", "part_tiles", "parts", "rows", "momentum", "eps"]


@triton.jit
def part_of(
    x, c, begin, stop, samples, channels, pixels,
    LAST: tl.constexpr, INT64: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Return the statistics of tiles `begin` to `stop` of channels: values, shift, mean - shift, squared deviations."""
    offsets, mask = tile_of(begin, c, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
    first = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    before = values_before(begin, samples, pixels, LAST, BLOCK_A, BLOCK_B)
    values = values_before(begin + 1, samples, pixels, LAST, BLOCK_A, BLOCK_B) - before
    shift = of_channels(first, LAST) / values.to(tl.float32)
    deviations = tl.where(mask, first - shift[None, :], 0.0)
    squares = deviations * deviations
    for number in tl.range(begin + 1, stop, num_stages=STAGES):
        offsets, mask = tile_of(number, c, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
        more = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        more = tl.where(mask, more - shift[None, :], 0.0)
        deviations += more
        squares += more * more
    count = (values_before(stop, samples, pixels, LAST, BLOCK_A, BLOCK_B) - before).to(tl.float32)
    off = of_channels(deviations, LAST) / count
    total = of_channels(squares, LAST) - off * off * count
    return count, shift, off, tl.where(total < 0.0, 0.0, total)


@triton.jit
def conclude(
    c, average, squares, rows, mean, invstd, running_mean, running_var, batches, channels, momentum, eps,
    TRACK: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Store the statistics of channels, and update the running ones; the first program counts the batch.

    Returns the inverse of the standard deviation.
    """
    mask = c < channels
    values = rows.to(tl.float32)
    inverse = 1.0 / tl.sqrt(squares / values + eps)
    tl.store(mean + c, average, mask=mask)
    tl.store(invstd + c, inverse, mask=mask)
    first = tl.program_id(0) == 0
    if TRACK:
        old_mean = tl.load(running_mean + c, mask=mask, other=0.0).to(tl.float32)
        old_var = tl.load(running_var + c, mask=mask, other=0.0).to(tl.float32)
    if COUNT:
        counted = tl.load(batches, mask=first, other=0)
    tl.debug_barrier()  # a warp that has not read yet must not find what another has written
    if TRACK:
        unbiased = squares / (values - 1.0)  # NaN of a single value, as in torch
        new_mean = old_mean * (1.0 - momentum) + average * momentum
        new_var = old_var * (1.0 - momentum) + unbiased * momentum
        tl.store(running_mean + c, new_mean.to(running_mean.dtype.element_ty), mask=mask)
        tl.store(running_var + c, new_var.to(running_var.dtype.element_ty), mask=mask)
    if COUNT:
        tl.store(batches, counted + 1, mask=first)
    return inverse


@triton.jit(do_not_specialize=SIZES)
def partial_statistics(
    x, partial,                                        # tensors: input, partial statistics in fp32
    samples, channels, pixels,                         # of the input: see `values`
    tiles, part_tiles, parts,                          # tiles of a channel; tiles of a part, and how many parts
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: samples and pixels, or rows and channels
    STAGES: tl.constexpr,                              # tiles whose loads are in flight at once
):  # fmt: skip
    """Compute the statistics of a part of each channel.

        partial[0, part, c] = how many values it has
        partial[1, part, c] = shift, which is near their mean
        partial[2, part, c] = mean - shift
        partial[3, part, c] = sum of (x - mean)**2

    Grid: blocks of channels; parts.
    """
    BLOCK_C: tl.constexpr = BLOCK_B if LAST else 1
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.program_id(1)
    begin = part * part_tiles
    stop = tl.minimum(begin + part_tiles, tiles)
    count, shift, off, squares = part_of(
        x, c, begin, stop, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B, STAGES
    )  # fmt: skip
    mask = c < channels
    tl.store(partial + part * channels + c, tl.zeros_like(shift) + count, mask=mask)
    tl.store(partial + (parts + part) * channels + c, shift, mask=mask)
    tl.store(partial + (2 * parts + part) * channels + c, off, mask=mask)
    tl.store(partial + (3 * parts + part) * channels + c, squares, mask=mask)


@triton.jit(do_not_specialize=SIZES)
def combine_statistics(
    partial, running_mean, running_var, batches,       # tensors: see above; the others, or anything
    mean, invstd,                                      # results
    channels, parts, rows,                             # channels; parts and values of each
    momentum, eps,                                     # share of the new value in the running ones; added to variances
    TRACK: tl.constexpr, COUNT: tl.constexpr,          # whether there are running statistics, and `batches`
    BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,      # tile: parts, all of them; channels
):  # fmt: skip
    """Combine partial statistics, in fixed order, and update the running ones.

    Grid: blocks of channels.
    """
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.arange(0, BLOCK_S)
    mask = (part < parts)[:, None] & (c < channels)[None, :]
    pointers = partial + part[:, None] * channels + c[None, :]
    count = tl.load(pointers, mask=mask, other=0.0)
    shift = tl.load(pointers + parts * channels, mask=mask, other=0.0)
    off = tl.load(pointers + 2 * parts * channels, mask=mask, other=0.0)
    squares = tl.load(pointers + 3 * parts * channels, mask=mask, other=0.0)
    first = tl.load(partial + parts * channels + c, mask=c < channels, other=0.0)
    off += shift - first[None, :]
    average = tl.sum(count * off, axis=0) / rows.to(tl.float32)
    distance = tl.where(mask, off - average[None, :], 0.0)
    total = tl.sum(squares + count * distance * distance, axis=0)
    conclude(
        c, first + average, total, rows, mean, invstd, running_mean, running_var, batches, channels, momentum, eps,
        TRACK, COUNT,
    )  # fmt: skip
