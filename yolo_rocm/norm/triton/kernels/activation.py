"""The activation of normalised values, and its gradients: sums over a channel, their combination, the input's gradient.

    z = (x - mean) invstd weight + bias,  y = act(z),  dz = dy act'(z)
    dbias = sum of dz,  dweight = invstd sum of dz (x - mean)
    dx = invstd weight (dz - mean of dz - (x - mean) invstd**2 mean of dz (x - mean));  of running statistics, the first
         term alone

z is computed again in backward, from the input and its statistics. Signatures as in `statistics`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ....engines.triton.values import activated
from .statistics import conclude, part_of
from .values import derived, of_channels, place_of, scale_and_bias, spread, tile_of

SIZES = ["samples", "tiles", "part_tiles", "parts", "rows", "momentum", "eps"]


@triton.jit(do_not_specialize=SIZES)
def activate(
    x, mean, invstd, weight, bias,                     # tensors: input, its statistics; parameters, or anything
    y,                                                 # result
    samples, channels, pixels,                         # of the input: see `values`
    AFFINE: tl.constexpr,                              # whether there are parameters
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # its name; slope of a leaky ReLU
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: planes and pixels, or rows and channels
):  # fmt: skip
    """Compute the activation.

    Grid: tiles.
    """
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    offsets, mask, c, there = place_of(tl.program_id(0), samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
    values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
    average = tl.load(mean + c, mask=there, other=0.0)
    scale, added = scale_and_bias(weight, bias, invstd, c, there, AFFINE)
    z = tl.fma(values - spread(average, LAST), spread(scale, LAST), spread(added, LAST))
    tl.store(y + offsets, activated(z, ACTIVATION, SLOPE, EXACT).to(y.dtype.element_ty), mask=mask)


@triton.jit
def gradients_of(
    grad, x, average, scale, added, c, begin, stop, samples, channels, pixels,
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    LAST: tl.constexpr, INT64: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Return the sums of dz and of dz (x - mean) over tiles `begin` to `stop` of channels."""
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    total = tl.zeros((BLOCK_A, BLOCK_B), dtype=tl.float32)
    product = tl.zeros((BLOCK_A, BLOCK_B), dtype=tl.float32)
    for number in tl.range(begin, stop, num_stages=STAGES):
        offsets, mask = tile_of(number, c, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
        centred = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) - average[None, :]
        dz = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        z = tl.fma(centred, scale[None, :], added[None, :])
        dz = tl.where(mask, derived(dz, z, ACTIVATION, SLOPE, EXACT), 0.0)
        total += dz
        product = tl.fma(dz, centred, product)
    return of_channels(total, LAST), of_channels(product, LAST)


@triton.jit
def conclude_gradients(
    c, total, product, rows, by, scale, grad_weight, grad_bias, channels, WEIGHT: tl.constexpr, BIAS: tl.constexpr
):
    """Store the gradients of parameters that are wanted, and return what `dx_of` subtracts."""
    mask = c < channels
    if WEIGHT:
        tl.store(grad_weight + c, (product * by).to(grad_weight.dtype.element_ty), mask=mask)
    if BIAS:
        tl.store(grad_bias + c, total.to(grad_bias.dtype.element_ty), mask=mask)
    values = rows.to(tl.float32)
    return scale * (total / values), scale * by * by * (product / values)


@triton.jit
def dx_of(
    dz, centred, scale, added, first, second,
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr, EXACT: tl.constexpr, TRAINING: tl.constexpr,
):  # fmt: skip
    """Return the gradient of the input from that of the result."""
    dz = derived(dz, tl.fma(centred, scale, added), ACTIVATION, SLOPE, EXACT)
    if TRAINING:
        dx = tl.fma(centred, -second, tl.fma(dz, scale, -first))
    else:
        dx = dz * scale
    return dx


@triton.jit(do_not_specialize=SIZES)
def partial_gradients(
    grad, x, mean, invstd, weight, bias,               # tensors: gradient of the result; as in `activate`
    partial,                                           # partial sums in fp32
    samples, channels, pixels,                         # of the input
    tiles, part_tiles, parts,                          # as in `partial_statistics`
    AFFINE: tl.constexpr,                              # whether there are parameters
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # its name; slope of a leaky ReLU
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: samples and pixels, or rows and channels
    STAGES: tl.constexpr,                              # tiles whose loads are in flight at once
):  # fmt: skip
    """Compute sums over a part of each channel.

        partial[0, part, c] = sum of dz
        partial[1, part, c] = sum of dz (x - mean)

    Grid: blocks of channels; parts.
    """
    BLOCK_C: tl.constexpr = BLOCK_B if LAST else 1
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = c < channels
    part = tl.program_id(1)
    begin = part * part_tiles
    stop = tl.minimum(begin + part_tiles, tiles)
    average = tl.load(mean + c, mask=mask, other=0.0)
    scale, added = scale_and_bias(weight, bias, invstd, c, mask, AFFINE)
    total, product = gradients_of(
        grad, x, average, scale, added, c, begin, stop, samples, channels, pixels,
        ACTIVATION, SLOPE, LAST, INT64, BLOCK_A, BLOCK_B, STAGES,
    )  # fmt: skip
    tl.store(partial + part * channels + c, total, mask=mask)
    tl.store(partial + (parts + part) * channels + c, product, mask=mask)


@triton.jit(do_not_specialize=SIZES)
def combine_gradients(
    partial, invstd, weight, grad_weight, grad_bias,   # tensors: see above; results that are wanted, or anything
    coefficients,                                      # result: what `input_gradient` subtracts
    channels, parts, rows,                             # channels; parts and values of each
    AFFINE: tl.constexpr,                              # whether there are parameters
    WEIGHT: tl.constexpr, BIAS: tl.constexpr,          # whether their gradients are wanted
    BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,      # tile: parts, all of them; channels
):  # fmt: skip
    """Add partial sums, in fixed order.

        coefficients[0, c] = invstd weight mean of dz
        coefficients[1, c] = invstd**3 weight mean of dz (x - mean)

    Grid: blocks of channels.
    """
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    part = tl.arange(0, BLOCK_S)
    mask = (part < parts)[:, None] & (c < channels)[None, :]
    pointers = partial + part[:, None] * channels + c[None, :]
    total = tl.sum(tl.load(pointers, mask=mask, other=0.0), axis=0)
    product = tl.sum(tl.load(pointers + parts * channels, mask=mask, other=0.0), axis=0)
    there = c < channels
    by = tl.load(invstd + c, mask=there, other=0.0)
    scale = by
    if AFFINE:
        scale *= tl.load(weight + c, mask=there, other=0.0).to(tl.float32)
    first, second = conclude_gradients(
        c, total, product, rows, by, scale, grad_weight, grad_bias, channels, WEIGHT, BIAS
    )  # fmt: skip
    tl.store(coefficients + c, first, mask=there)
    tl.store(coefficients + channels + c, second, mask=there)


@triton.jit(do_not_specialize=SIZES)
def input_gradient(
    grad, x, mean, invstd, weight, bias,               # tensors: gradient of the result; as in `activate`
    coefficients,                                      # as in `combine_gradients`; anything for running statistics
    result,                                            # gradient of the input
    samples, channels, pixels,                         # of the input
    AFFINE: tl.constexpr,                              # whether there are parameters
    TRAINING: tl.constexpr,                            # whether the statistics depend on the input
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # its name; slope of a leaky ReLU
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: planes and pixels, or rows and channels
):  # fmt: skip
    """Compute the gradient of the input.

    Grid: tiles.
    """
    offsets, mask, c, there = place_of(tl.program_id(0), samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    average = tl.load(mean + c, mask=there, other=0.0)
    scale, added = scale_and_bias(weight, bias, invstd, c, there, AFFINE)
    first = average
    second = average
    if TRAINING:
        first = tl.load(coefficients + c, mask=there, other=0.0)
        second = tl.load(coefficients + channels + c, mask=there, other=0.0)
    centred = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) - spread(average, LAST)
    dz = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
    dx = dx_of(
        dz, centred, spread(scale, LAST), spread(added, LAST), spread(first, LAST), spread(second, LAST),
        ACTIVATION, SLOPE, EXACT, TRAINING,
    )  # fmt: skip
    tl.store(result + offsets, dx.to(result.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def whole_forward(
    x, running_mean, running_var, batches,             # tensors: input; the others, or anything
    weight, bias,                                      # parameters, or anything
    mean, invstd, y,                                   # results
    samples, channels, pixels,                         # of the input
    tiles, rows,                                       # tiles and values of a channel
    momentum, eps,                                     # as in `combine_statistics`
    TRACK: tl.constexpr, COUNT: tl.constexpr,          # whether there are running statistics, and `batches`
    AFFINE: tl.constexpr,                              # whether there are parameters
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # its name; slope of a leaky ReLU
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: samples and pixels, or rows and channels
    STAGES: tl.constexpr,                              # tiles whose loads are in flight at once
):  # fmt: skip
    """Compute statistics and activation of channels that are one part each: one launch, for small layers.

    Grid: blocks of channels.
    """
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    BLOCK_C: tl.constexpr = BLOCK_B if LAST else 1
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    _, shift, off, squares = part_of(
        x, c, 0, tiles, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B, STAGES
    )  # fmt: skip
    average = shift + off
    scale = conclude(
        c, average, squares, rows, mean, invstd, running_mean, running_var, batches, channels, momentum, eps,
        TRACK, COUNT,
    )  # fmt: skip
    added = tl.zeros_like(scale)
    if AFFINE:
        there = c < channels
        scale *= tl.load(weight + c, mask=there, other=0.0).to(tl.float32)
        added = tl.load(bias + c, mask=there, other=0.0).to(tl.float32)
    for number in tl.range(0, tiles, num_stages=STAGES):
        offsets, mask = tile_of(number, c, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
        values = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        z = tl.fma(values - average[None, :], scale[None, :], added[None, :])
        tl.store(y + offsets, activated(z, ACTIVATION, SLOPE, EXACT).to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=SIZES)
def whole_backward(
    grad, x, mean, invstd, weight, bias,               # tensors: gradient of the result; as in `activate`
    grad_weight, grad_bias,                            # results that are wanted, or anything
    result,                                            # gradient of the input
    samples, channels, pixels,                         # of the input
    tiles, rows,                                       # tiles and values of a channel
    AFFINE: tl.constexpr,                              # whether there are parameters
    WEIGHT: tl.constexpr, BIAS: tl.constexpr,          # whether their gradients are wanted
    TRAINING: tl.constexpr,                            # whether the statistics depend on the input
    ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,     # its name; slope of a leaky ReLU
    LAST: tl.constexpr,                                # channels_last
    INT64: tl.constexpr,                               # whether offsets need 64 bits
    BLOCK_A: tl.constexpr, BLOCK_B: tl.constexpr,      # tile: samples and pixels, or rows and channels
    STAGES: tl.constexpr,                              # tiles whose loads are in flight at once
):  # fmt: skip
    """Compute all gradients of channels that are one part each: one launch, for small layers.

    Grid: blocks of channels.
    """
    EXACT: tl.constexpr = x.dtype.element_ty == tl.float32
    BLOCK_C: tl.constexpr = BLOCK_B if LAST else 1
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    there = c < channels
    average = tl.load(mean + c, mask=there, other=0.0)
    by = tl.load(invstd + c, mask=there, other=0.0)
    scale, added = scale_and_bias(weight, bias, invstd, c, there, AFFINE)
    total, product = gradients_of(
        grad, x, average, scale, added, c, 0, tiles, samples, channels, pixels,
        ACTIVATION, SLOPE, LAST, INT64, BLOCK_A, BLOCK_B, STAGES,
    )  # fmt: skip
    first, second = conclude_gradients(
        c, total, product, rows, by, scale, grad_weight, grad_bias, channels, WEIGHT, BIAS
    )  # fmt: skip
    for number in tl.range(0, tiles, num_stages=STAGES):
        offsets, mask = tile_of(number, c, samples, channels, pixels, LAST, INT64, BLOCK_A, BLOCK_B)
        centred = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) - average[None, :]
        dz = tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)
        dx = dx_of(
            dz, centred, scale[None, :], added[None, :], first[None, :], second[None, :],
            ACTIVATION, SLOPE, EXACT, TRAINING,
        )  # fmt: skip
        tl.store(result + offsets, dx.to(result.dtype.element_ty), mask=mask)
