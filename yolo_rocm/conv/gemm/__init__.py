"""Convolutions of engine `gemm`: pure PyTorch, one idea a file; each may import `base`, `problem` and `engines`."""
