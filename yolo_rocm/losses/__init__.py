"""The loss of a detector in few kernels: which anchors may answer for a box, and what their boxes and classes lose.

A loss is some hundreds of small operations, several of which wait for the device: on a fast GPU the host needs more
time to launch them than the device to compute them. Those on classes are few, but large. Here are five kernels for most
of them: `kernels` has the Triton and its launches as plain data, which `launches` makes; `boxes` and `logits` are what
is computed by them, and `proof` holds results against those of what they take the place of. Nothing here knows
Ultralytics: `logits` takes the place of a function of torch.
"""
