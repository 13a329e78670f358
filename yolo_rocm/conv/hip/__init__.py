"""Convolutions of engine `hip`: kernels in C++ for HIP and CUDA, next to the algorithms that launch them.

A source (`*.hip.cpp`) is one kernel, compiled at run time after the engine's prelude and with its tile, layout and data
type as defines. `calls` describes launches, without a device; `base` has the three passes, `tiles` the tables; each
other module is an algorithm.
"""
