"""What must be installed before anything is computed: torch and Ultralytics, and libraries of the system."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import Final

from ..errors import StackError
from .packages import Misfit

# Imports that fail where torch or Ultralytics is missing: what `setup` installs, and what comes with it.
_STACK: Final = ("torch", "torchvision", "ultralytics", "numpy", "cv2")

# As the dynamic loader says it on Linux. A server or a container without graphics has none of them.
# Which is named first differs among OpenCV's releases: libGL in 4, libxcb in 5.
_MISSING: Final = re.compile(
    r"(lib(?:GL|glib-2\.0|gthread-2\.0|xcb|X11|Xext|SM|ICE)\.so[.\d]*): cannot open shared object file"
)


# Packages of Debian and Ubuntu that hold them.
OPENCV_PACKAGES: Final = ("libgl1", "libglib2.0-0")


def missing_stack(error: BaseException | None = None) -> StackError | None:
    """Return what to do where torch or Ultralytics is not installed in this environment; else None.

    Args:
        error: What has been raised; None to look without one. An import of something else does not count.
    """
    if error is not None:
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name is None or name.partition(".")[0] not in _STACK:
            return None
    lacking = [name for name in _STACK[:3] if name not in sys.modules and importlib.util.find_spec(name) is None]
    if lacking in ([], ["torchvision"]):  # which newer Ultralytics imports where it needs it
        return None
    if lacking == ["ultralytics"]:  # with torchvision missing, pip would bring a CUDA torch too
        return StackError(f"Ultralytics is not installed in {sys.prefix}. Run: pip install ultralytics")
    used = r".venv\Scripts\yolo-rocm" if sys.platform == "win32" else ".venv/bin/yolo-rocm"
    return StackError(
        f"{', '.join(lacking)}: not installed in {sys.prefix}. Run "
        f"`{sys.executable} -m yolo_rocm setup --run`, which installs what this card needs into .venv, then use {used}."
    )


def missing_library(error: BaseException | str) -> Misfit | None:
    """Return what is missing where OpenCV could not be imported for a library of the system; else None.

    Args:
        error: What was raised, or its words.
    """
    found = _MISSING.search(str(error)) if isinstance(error, (ImportError, str)) else None
    if found is None:
        return None
    return Misfit(
        f"OpenCV, which Ultralytics imports, needs {found[1]}, and this system does not have it",
        f"As root: apt install {' '.join(OPENCV_PACKAGES)} (Debian, Ubuntu), "
        "dnf install mesa-libGL glib2 libxcb (Fedora), or pacman -S libglvnd glib2 libxcb (Arch)",
    )
