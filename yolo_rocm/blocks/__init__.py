"""Blocks: convolution, BatchNorm and activation as one, in training as a function of autograd.

Convolutions and normalisations each have a room of their own, which choose and compute. Here their passes are put
together, so that a block of a network costs Python one call instead of three: `block_plan` holds what all calls of
a kind need, `call` what one of them keeps, and `block` is the function; `inference` is the block of a network that only
computes. Nothing here knows Ultralytics.
"""
