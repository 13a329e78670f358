"""The loss of a detector in few kernels: which anchors may answer for a box, and the losses of the boxes they predict.

A loss is some hundreds of small operations on small tensors, several of which wait for the device: on a fast GPU the
host needs more time to launch them than the device to compute them. Here are three kernels for most of them: `kernels`
has the Triton and its launches as plain data, `boxes` is what is computed by them, and `proof` holds the first results
against those of what they take the place of. Nothing here knows Ultralytics.
"""
