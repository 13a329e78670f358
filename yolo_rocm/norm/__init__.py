"""Normalisation: every BatchNorm of the process, alone or as one with the activation behind it.

`problem` describes a call, `algorithms` are the ways to compute it (torch's own kernels, plain PyTorch, Triton, C++),
`triton` and `hip` hold kernels of ours; the engine room chooses among the algorithms by measurement. `seam` takes
torch's operators below autograd, and `fused` is BatchNorm and activation as one function. `lean` keeps recipes for
backward instead of activations: `recipes` knows which tensors have one, `keeping` holds the kinds, `derived` follows
activations through `cat` and the like, and `kept_bytes` counts what is left. Nothing here knows Ultralytics, and
nothing here knows convolutions.
"""
