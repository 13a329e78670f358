"""Convolutions in Triton: the kernels, their tiles, and how a problem becomes their arguments."""
