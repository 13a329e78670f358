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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

# Triton reads it whenever it compiles or looks for what it has compiled. Where Triton has `knobs`, a value that the
# user has set there in Python takes precedence over the variable.
VARIABLE: Final = "AMDGCN_USE_BUFFER_OPS"
KNOB: Final = "use_buffer_ops"
_lock = threading.Lock()
_inside = 0  # compilations under way that need it
_put_back: Callable[[], None] | None = None


def broken_on(gfx: str) -> bool:
    """Return whether Triton's buffer descriptors do not work on a target."""
    return re.fullmatch(r"gfx101\d", gfx) is not None


@contextmanager
def without_broken_buffers(gfx: str) -> Iterator[None]:
    """Let Triton compile for a target without buffer descriptors where they do not work.

    The settings are the process's: threads that compile at the same time count, and the last one puts them back.
    """
    global _inside, _put_back
    if not broken_on(gfx):
        yield
        return
    with _lock:
        if _inside == 0:
            _put_back = _turn_off()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _put_back is not None:
                _put_back()


def _turn_off() -> Callable[[], None]:
    """Turn buffer descriptors off; return a function that undoes it."""
    variable, knobs = os.environ.get(VARIABLE), _knobs()
    # What the user has set there; where it is nothing, the knob follows the variable.
    own = {} if knobs is None else {name: value for name, value in vars(knobs).items() if name == KNOB}
    if knobs is not None:
        setattr(knobs, KNOB, False)
    os.environ[VARIABLE] = "0"

    def put_back() -> None:
        if knobs is not None:
            delattr(knobs, KNOB)
            for name, value in own.items():
                setattr(knobs, name, value)
        # Last, because a knob that is set sets the variable too.
        if variable is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = variable

    return put_back


def _knobs() -> Any | None:
    """Return Triton's knobs for AMD; None where it has none."""
    try:
        from triton import knobs
    except ImportError:  # no Triton, or an older one
        return None
    amd = getattr(knobs, "amd", None)
    return amd if hasattr(amd, KNOB) else None
