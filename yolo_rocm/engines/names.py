"""The names of the engines, and the one check of a setting such as `conv.engine`. No torch: presets import this."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ..errors import ConfigError, nearest

# vendor: torch's own kernels with the vendor library on; aten: the same with it off; the others are this package's.
VENDOR: Final = "vendor"
NATIVE: Final = (VENDOR, "aten")
OURS: Final = ("gemm", "triton", "hip")
SINGLE: Final = (*NATIVE, *OURS)
ENGINES: Final = ("auto", *SINGLE)


class Pass(str, Enum):
    """A pass of an operator. Each is its own word: in files, and where a user reads it."""

    FORWARD = "forward"
    BACKWARD = "backward"
    GRAD_INPUT = "grad_input"
    GRAD_WEIGHT = "grad_weight"

    def __str__(self) -> str:
        """Return the word, on every Python alike."""
        return self.value

    __format__ = str.__format__  # type: ignore[assignment]  # of Python 3.10 as of later ones


def single_engines(setting: str) -> list[str]:
    """Return the engines that a setting names, each once: one of `ENGINES`, or several of `SINGLE` joined by `+`.

    Raises:
        ConfigError: It names one that does not exist, or joins `auto` with others.
    """
    names = list(SINGLE) if setting == "auto" else setting.split("+")
    allowed = f"Allowed: {', '.join(ENGINES)}, or several of the last {len(SINGLE)} joined by '+'."
    for name in names:
        if name == "auto":
            raise ConfigError(f"engine {setting!r}: 'auto' cannot be joined with others. {allowed}")
        if name not in SINGLE:
            near = nearest(name, ENGINES if len(names) == 1 else SINGLE)
            raise ConfigError(f"unknown engine {name!r}{near} {allowed}")
    return list(dict.fromkeys(names))
