"""Convolutions in Triton: kernels (one module a family), their policies (`tiles`, `steps`) and arguments (`calls`).

May import `conv.problem` and `engines`; the modules of kernels import Triton, and are imported by nobody but
`engines.triton.launch`. Change `tiles` for another tile, split or measurement; a new kernel is a function here, a
function in `calls` that describes its launch, and an algorithm in `conv.algorithms` that launches it.
"""
