"""Convolution, bias and activation as one, for inference: `act(conv(x))` in one kernel that writes its result once.

An operator of its own beside convolution: it has one pass, and candidates that the passes of a training do not have,
kernels with the activation in their epilogue and tiles for small batches. Convolution's own algorithms, with torch's
activation behind them, are candidates too. `blocks` gives it tensors of modules, and `conv.seam` the convolutions
that come by the dispatcher, both only inside of a forward pass of the network that a run computes.
"""
