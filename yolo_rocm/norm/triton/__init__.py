"""BatchNorm of engine `triton`.

`algorithm` is what the engine room sees, `passes` what it computes for one problem with launches at hand. `calls` turns
a problem into launches as plain data, by the tables of `tiles`; neither needs Triton, so that they serve machines that
have none. Kernels are in a package of their own.
"""
