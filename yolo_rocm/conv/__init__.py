"""Convolutions of the process through our own code: the seam at torch's dispatcher, problems, algorithms and kernels.

The first client of `engines`, and may import that, `hardware`, `utils` and `errors`; it knows nothing of Ultralytics.
A newcomer adds an algorithm (a file in `gemm`, `triton` or `hip`, and a line in `algorithms`), or an entry in
`heuristics` for what to take before anything was measured. `plan` describes convolution to the engine room.
"""
