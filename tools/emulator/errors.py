"""What ends an emulation: an instruction that nobody has written down yet, or a program that does something wrong."""

from __future__ import annotations


class EmulationError(Exception):
    """A program did what it must not do. The line of the assembly is added where it is known."""


class UnknownInstruction(EmulationError):
    """An instruction, operand or modifier that the emulator does not know. It is never skipped."""


class MemoryFault(EmulationError):
    """An access outside of every buffer, at a forbidden alignment, or of bytes that nobody has written."""


class Race(EmulationError):
    """Two waves met at an address, one of them writing, with no barrier between."""


class NotWaitedFor(EmulationError):
    """A register was used while a load into it, or a read of it, was still under way."""


class Deadlock(EmulationError):
    """Waves wait at a barrier that others will never reach."""


class Endless(EmulationError):
    """A program does not come to its end."""
