"""Trust: which kernels may be used on a device, and how that is shown.

`record` has one record per device: kernels that failed their qualification, algorithms that give wrong numbers for a
problem, and those that have made the device fault, which are kept on disk for later processes. `checks` fills it: each
kernel once per device and data type on a small problem, what was not measured once at its own size, candidates of a
measurement before they are timed.
"""
