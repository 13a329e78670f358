"""Libraries of the system that packages from pip expect to find there."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# As the dynamic loader says it on Linux. A server or a container without graphics has none of them.
# Which is named first differs among OpenCV's releases: libGL in 4, libxcb in 5.
_MISSING: Final = re.compile(
    r"(lib(?:GL|glib-2\.0|gthread-2\.0|xcb|X11|Xext|SM|ICE)\.so[.\d]*): cannot open shared object file"
)


# Packages of Debian and Ubuntu that hold them.
OPENCV_PACKAGES: Final = ("libgl1", "libglib2.0-0")


class MissingLibrary(NamedTuple):
    """A library that is not there: what needs it, and how it comes there."""

    what: str
    remedy: str


def missing_library(error: BaseException | str) -> MissingLibrary | None:
    """Return what is missing where OpenCV could not be imported for a library of the system; else None.

    Args:
        error: What was raised, or its words.
    """
    found = _MISSING.search(str(error)) if isinstance(error, (ImportError, str)) else None
    if found is None:
        return None
    return MissingLibrary(
        f"OpenCV, which Ultralytics imports, needs {found[1]}, and this system does not have it",
        f"On Debian and Ubuntu, as root: apt install {' '.join(OPENCV_PACKAGES)}. Elsewhere install the packages that "
        "hold libGL.so.1, libxcb.so.1 and libgthread-2.0.so.0",
    )
