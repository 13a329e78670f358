"""Kernels in C++ for every operator, compiled at run time by what torch brings along: hiprtc, or NVRTC on NVIDIA.

Needs no toolchain and no Triton, so it serves cards and systems that Triton does not: RX 5000, Windows. A source is a
`program.Program`; `rtc` compiles it in a process of its own, `store` keeps the result, `driver` loads and launches it
through ctypes, `available` says why a device cannot use it. Nothing here knows an operator. Change `libraries` for a
new name or place of a library, `prelude.h` for what sources have in common.
"""
