"""The kernels of convolution in Triton's language, a module each family."""
