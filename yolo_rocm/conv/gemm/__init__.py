"""Convolutions of engine `gemm`, in pure PyTorch: what every card computes, with every torch since 1.13.

One idea a file, each an algorithm with its three passes; those that read windows of an image by a correlation share
`correlating`. They import `base` and `problem` of the room above and `engines`, and multiply by `engines.products`
alone. Which one a layer takes is measured, not decided here; `windows` is what others are compared with.
"""
