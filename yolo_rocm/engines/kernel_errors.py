"""What may become of a kernel that is compiled on the spot, by whatever compiler."""

from __future__ import annotations


class Spills(RuntimeError):
    """A kernel needs more registers than there are: slower than another tile, and not worth timing."""


class CompilerError(RuntimeError):
    """A kernel could not be compiled, or does not fit the device.

    Attributes:
        log: All that the compiler said, where it said more than the message.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class LaunchError(RuntimeError):
    """The runtime of the GPU refused to load or to launch a kernel; the message has its own words."""
