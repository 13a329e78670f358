"""Which Ultralytics is usable: what the rest of this package needs of it, asked by name."""

from __future__ import annotations

import importlib.util
from typing import Final

from packaging.version import Version

from ..errors import StackError

OLDEST: Final = Version("8.3.0")


def require() -> None:
    """Check that a usable Ultralytics is installed.

    Raises:
        StackError: It is missing or too old; the message has the command to run.
    """
    if importlib.util.find_spec("ultralytics") is None:
        raise StackError(
            "Ultralytics is not installed. Install torch and torchvision for your GPU first, "
            "then run: pip install ultralytics"
        )
    import ultralytics

    if Version(ultralytics.__version__) < OLDEST:
        raise StackError(
            f"Ultralytics {ultralytics.__version__} is too old, {OLDEST} or newer is needed: pip install -U ultralytics"
        )
