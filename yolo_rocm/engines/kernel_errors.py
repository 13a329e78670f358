"""What may become of a kernel that is compiled on the spot, by whatever compiler."""

from __future__ import annotations


class Spills(RuntimeError):
    """A kernel needs more registers than there are: slower than another tile, and not worth timing."""


class CompilerError(RuntimeError):
    """A kernel could not be compiled, or does not fit the device; the message has the compiler's first error."""


class LaunchError(RuntimeError):
    """The runtime of the GPU refused to load or to launch a kernel; the message has its own words."""
