"""The kernels of convolution in Triton's language, a module each family, with their formulas.

These modules import Triton, so nobody imports them but `engines.triton.launch`, when a kernel is launched or compiled
for the first time: a torch without Triton never sees them. What is launched, with which grid, numbers and constants,
is in `calls` of the package above; the order of arguments there is that of the signatures here.
"""
