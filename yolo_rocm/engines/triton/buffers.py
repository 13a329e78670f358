"""Buffer descriptors on RDNA1, which Triton gets wrong: kernels for these cards are compiled without them.

From gfx10 on, word 3 of a descriptor says how an offset is held against the buffer's size. Triton (the assembly of 3.6
shows it) writes word 3 for gfx101x as for CDNA: the check is then against a stride of 0, every load gives 0 and every
store is dropped, without an error. gfx103x and newer get the right one. So AMD's documents and the emulator in `tools`
say; no card was there to see it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from ...utils.scoped_patch import ScopedPatch

# Triton reads it whenever it compiles or looks for what it has compiled. Where Triton has `knobs`, a value that the
# user has set there in Python takes precedence over the variable.
VARIABLE: Final = "AMDGCN_USE_BUFFER_OPS"
KNOB: Final = "use_buffer_ops"


def broken_on(gfx: str) -> bool:
    """Return whether Triton's buffer descriptors do not work on a target."""
    return re.fullmatch(r"gfx101\d", gfx) is not None


@contextmanager
def without_broken_buffers(gfx: str) -> Iterator[None]:
    """Let Triton compile for a target without buffer descriptors where they do not work.

    The settings are the process's: threads that compile at the same time count, and the last one puts them back.
    """
    with ExitStack() as undo:
        if broken_on(gfx):
            undo.enter_context(_of_process.on(lambda before: "0"))
            undo.enter_context(_of_triton.on(lambda before: False))
        yield


def _own_knobs() -> MutableMapping[str, Any]:
    """Return the knobs for AMD that the user has set, which are those that do not follow a variable."""
    try:
        from triton import knobs
    except ImportError:  # no Triton, or an older one
        return {}
    amd = getattr(knobs, "amd", None)
    return vars(amd) if hasattr(amd, KNOB) else {}


def _entry(owner: Callable[[], MutableMapping[str, Any]], name: str) -> ScopedPatch:
    def write(value: Any) -> None:
        if value is None:
            owner().pop(name, None)
        else:
            owner()[name] = value

    return ScopedPatch(lambda: owner().get(name), write)


_of_process, _of_triton = _entry(lambda: os.environ, VARIABLE), _entry(_own_knobs, KNOB)
