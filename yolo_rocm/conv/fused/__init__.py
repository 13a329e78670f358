"""Convolution, bias and activation as one, for inference: `act(conv(x))` in one kernel that writes its result once.

An operator of its own beside convolution: it has one pass, and candidates that the passes of a training do not have,
kernels with the activation in their epilogue and tiles for small batches. Convolution's own algorithms, with torch's
activation behind them, are candidates too. Whoever has modules in the hand (`blocks`) asks `seam` who is serving and
gives tensors to the patch; nothing comes here by the dispatcher.
"""
