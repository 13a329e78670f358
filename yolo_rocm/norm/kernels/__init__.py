"""Triton kernels of BatchNorm, and their launches as plain data.

Statistics, activation, sums of backward and its gradient, each for NCHW and for channels_last. The modules with kernels
import Triton and are imported only where one is launched or compiled; calls and tiles are plain data and need none.
"""
