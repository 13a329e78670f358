"""Binary cross entropy of logits with targets between 0 and 1, value by value, and its gradient.

    loss = (1 - target) logit + max(-logit, 0) + log(1 + exp(-|logit|))

All of it is computed in fp32.
"""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ["count"]


@triton.jit
def read(logits, targets, count, BLOCK: tl.constexpr):
    """Return a program's places, which of them there are, its logits, its targets, and exp(-|logit|)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    logit = tl.load(logits + place, mask=there, other=0.0).to(tl.float32)
    target = tl.load(targets + place, mask=there, other=0.0).to(tl.float32)
    return place, there, logit, target, tl.exp(-tl.abs(logit))


@triton.jit
def log_1_plus(small):
    """Return log(1 + small) for what is not negative; `small` itself where 1 swallows it."""
    whole = 1.0 + small
    swallowed = whole == 1.0
    # What rounding the sum has taken away is in the quotient.
    return tl.where(swallowed, small, tl.log(whole) * (small / tl.where(swallowed, 1.0, whole - 1.0)))


@triton.jit(do_not_specialize=SIZES)
def logit_losses(
    logits, targets,                                   # tensors
    losses,                                            # result
    count,                                             # of values
    BLOCK: tl.constexpr,                               # values of a program
):  # fmt: skip
    """Compute the loss of each value. Grid: blocks of values."""
    place, there, logit, target, small = read(logits, targets, count, BLOCK)
    linear = (1.0 - target) * logit + tl.where(logit < 0.0, -logit, 0.0)
    tl.store(losses + place, (linear + log_1_plus(small)).to(losses.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=SIZES)
def logit_gradients(
    grads, logits, targets,                            # tensors: gradients by the losses, see above
    grad_logits,                                       # result
    count,                                             # see above
    BLOCK: tl.constexpr,                               # see above
    SAME: tl.constexpr,                                # whether there is one gradient for all losses
):  # fmt: skip
    """Compute the gradient by each logit. Grid: blocks of values."""
    place, there, logit, target, small = read(logits, targets, count, BLOCK)
    if SAME:
        by = tl.load(grads)
    else:
        by = tl.load(grads + place, mask=there, other=0.0)
    probability = tl.where(logit < 0.0, small, 1.0) / (1.0 + small)
    grad = (probability - target) * by
    tl.store(grad_logits + place, grad.to(grad_logits.dtype.element_ty), mask=there)
