"""Convolutions as Triton kernels: implicit GEMMs for all three passes, and direct kernels for depthwise layers.

Nothing here imports Triton at the top except the modules of kernels, imported when the first one is launched or
compiled: a torch without Triton, such as 1.13.1, never gets there.
"""
