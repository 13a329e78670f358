"""Triton for every operator: whether a device can use it, launches, compilation ahead of time, quarantined kernels.

A launch is plain data (`call.Call`) that names a kernel by its module, so nothing here knows an operator. Nothing here
imports Triton at the top either: a module of kernels is imported when the first of them is launched or compiled, and a
torch without Triton, such as 1.13.1, never gets there. May import `hardware`, `utils` and the modules of `engines` that
know no operator. Change `available` for a new family of GPUs, `direct` for a new version of Triton.
"""
