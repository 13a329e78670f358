"""Buffer descriptors on RDNA1, which Triton gets wrong: kernels for these cards are compiled without them.

From gfx10 on, word 3 of a descriptor says how an offset is held against the buffer's size. Triton (the assembly of 3.6
shows it) writes word 3 for gfx101x as for CDNA: the check is then against a stride of 0, every load gives 0 and every
store is dropped, without an error. gfx103x and newer get the right one. So AMD's documents and the emulator in `tools`
say; no card was there to see it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Triton reads it whenever it compiles or looks for what it has compiled.
VARIABLE: Final = "AMDGCN_USE_BUFFER_OPS"
_lock = threading.Lock()
_inside = 0  # compilations under way that need it
_before: str | None = None


def broken_on(gfx: str) -> bool:
    """Return whether Triton's buffer descriptors do not work on a target."""
    return re.fullmatch(r"gfx101\d", gfx) is not None


@contextmanager
def without_broken_buffers(gfx: str) -> Iterator[None]:
    """Let Triton compile for a target without buffer descriptors where they do not work.

    The variable is the process's: threads that compile at the same time count, and the last one puts it back.
    """
    global _inside, _before
    if not broken_on(gfx):
        yield
        return
    with _lock:
        if _inside == 0:
            _before = os.environ.get(VARIABLE)
            os.environ[VARIABLE] = "0"
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _before is None:
                os.environ.pop(VARIABLE, None)
            elif _inside == 0 and _before is not None:
                os.environ[VARIABLE] = _before
