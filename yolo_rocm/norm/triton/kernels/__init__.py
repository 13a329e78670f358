"""Triton kernels of BatchNorm: statistics, activation, sums of backward and its gradient.

Each serves NCHW and channels_last. These modules import Triton, and are imported only where a kernel is launched or
compiled. What two kernels share is in `values`; grids, arguments and constants are made in `calls`, one package up.
"""
