"""BatchNorm of engine `hip`: kernels in C++ for HIP and CUDA, next to the algorithm that launches them.

One source has all six of them, compiled at run time after the engine's prelude with layout, data type and activation as
defines. Statistics of parts are combined in an order that never changes; nothing is added atomically.
"""
