"""Convolutions of engine `triton`: algorithms, what they launch (`calls`), and their policies (`tiles`, `steps`).

`base` has the three passes; `kernels` are the only modules that import Triton, and imported by nobody but
`engines.triton.launch`. Change `tiles` for another tile, split or measurement; a new kernel is a function in `kernels`,
a function in `calls` that describes its launch, and an algorithm that launches it.
"""
