"""From a text to a code object for one target: out of the store, or compiled and kept there."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...utils.log_lines import log
from ..device_state import STATE
from ..kernel_errors import CompilerError
from .driver import Driver, driver
from .libraries import find, stack_of
from .store import STORE, key_of
from .target import Target
from .workers import POOL, CompilerHangs

# For a few lines, the loading of the library included. Less than the doctor waits for a probe that compiles.
FIRST_LIMIT_S: Final = 30.0
LIMIT_S: Final = 240.0
_FORGIVEN_S: Final = 24 * 3600.0  # after which a compiler that hung is tried again
# What a compiler has to show before kernels are given to it.
TRIAL: Final = """KERNEL(64) void trial(const float* x, float* y, i32 n) {
    u32 i = block_x() * 64u + thread_x();
    if (i < u32(n)) y[i] = fma_f(x[i], 2.0f, 1.0f);
}
"""


@lru_cache(maxsize=1)
def prelude() -> str:
    """Return the text that every source comes after."""
    return Path(__file__).with_name("prelude.h").read_text(encoding="utf-8")


_announced: set[Target] = STATE.container(set())  # for which something is compiled in this process


@dataclass(frozen=True)
class Compiler:
    """A compiler that has shown that it works for a target.

    Attributes:
        library: Its path or name.
        target: What it compiles for.
        version: That of the runtime, and what else tells one compiler from another.
    """

    library: str
    target: Target
    version: str

    def key(self, text: str) -> str:
        """Return the name in the store of what a text becomes."""
        return key_of(text, " ".join(self.target.options()), self.target.arch, self.version)

    def build(self, text: str, name: str, limit_s: float = LIMIT_S) -> bytes:
        """Return the code object of a whole text.

        Raises:
            CompilerError: It does not compile.
        """

        def make() -> bytes:
            if self.target not in _announced:
                _announced.add(self.target)
                line = "kernels are compiled for %s, once: they are kept in %s"
                log("hip.compiling", line, self.target.arch, STORE.folder, level=logging.INFO)
            given = (self.library, self.target.family, text, name, self.target.options())
            return POOL.compile(*given, limit_s)

        return STORE.get_or_make(self.key(text), make)


@STATE.cached(16)
def compiler(target: Target) -> Compiler | str:
    """Return the compiler for a target, or in words why there is none; what is broken is logged in one line.

    Its first work, and all after it, is done in a process that can be ended.
    """
    runtime = driver(target.family)
    if not isinstance(runtime, Driver):
        return runtime
    stack, why = stack_of(target.family), []
    text = prelude() + TRIAL
    for library in find(stack.compiler, stack):
        found = Compiler(library, target, f"{runtime.version()} {_identity(library)}")
        hung = STORE.folder / f"{found.key(text)}.hung"
        with suppress(OSError):  # there is none
            if time.time() - hung.stat().st_mtime < _FORGIVEN_S:
                why.append(f"{library} has hung when it was last tried; delete {hung} to have it tried again")
                break
        try:
            found.build(text, "trial", FIRST_LIMIT_S)
            return found
        except CompilerHangs as error:
            why.append(f"{library}: {error}")
            with suppress(OSError):
                hung.touch()
            break  # the next one is often the same under another name, and once is enough
        except CompilerError as error:
            if Path(library).is_absolute() or not why:
                why.append(f"{library}: {error}")
    there = [each for each in why if "cannot be used" not in each]
    if there:
        log("hip.off", "engine 'hip' is left out: %s", there[0])
    return (there or why or ["no compiler was found"])[0]


def _identity(library: str) -> str:
    """Return what tells one build of a compiler from another; some call themselves 9.0 in every release."""
    try:
        return f"{Path(library).name} {os.stat(library).st_size}"
    except OSError:  # left to the system's search
        return library
