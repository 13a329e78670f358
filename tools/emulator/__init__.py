"""An emulator of AMD GPUs: it executes the assembly that LLVM prints for a kernel, and checks what the kernel does.

For developers: kernels are run for cards that are not there. It computes results, not time. Memory out of bounds, reads
of what nobody wrote, races between waves, and registers used before a load into them was waited for end the run, and so
does an instruction that is in none of the tables. See `docs/tested.md` for what it has shown and what it cannot show.
"""

from .errors import Deadlock, EmulationError, Endless, MemoryFault, NotWaitedFor, Race, UnknownInstruction
from .launch import launch
from .memory import Buffer, Memory
from .program import Program

__all__ = [
    "Buffer", "Deadlock", "EmulationError", "Endless", "Memory", "MemoryFault", "NotWaitedFor", "Program", "Race",
    "UnknownInstruction", "launch",
]  # fmt: skip
