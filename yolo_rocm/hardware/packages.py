"""Installed packages and whether they fit each other, read from their files: those that do not fail on import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

OPENCV: Final = tuple(
    f"opencv{contrib}-python{headless}" for contrib in ("", "-contrib") for headless in ("", "-headless")
)
# What a failure may depend on, in the order of a report.
TOLD: Final = (
    *("torchvision", "numpy", *OPENCV, "pillow", "scipy", "pandas", "polars", "matplotlib", "psutil", "cloudpickle"),
    *("triton", "pytorch-triton-rocm", "triton-rocm", "triton-windows", "ultralytics-thop", "lap", "onnx"),
)
# What a library built with NumPy's headers imports when it is loaded; only those of NumPy 2 look in `_core`.
_NUMPY_MARKS: Final = ((2, b"numpy._core._multiarray_umath"), (1, b"numpy.core._multiarray_umath"))
# First releases whose wheels were built with NumPy 2 (pytorch#107302, pytorch#132179; Windows: pytorch#131668;
# opencv-python 4.10.0.84, its release notes).
_TORCH_NUMPY_2: Final = {"windows": "2.4.1", "": "2.3.0"}
_OPENCV_NUMPY_2: Final = "4.10.0.84"
# The last NumPy 1, and OpenCV before it asked pip for NumPy 2.
_LAST_NUMPY_1: Final = "1.26.4"
_OPENCV_WITH_NUMPY_1: Final = "4.12"


class Misfit(NamedTuple):
    """Two packages that cannot work together, or a package and a system that lacks a library of it.

    Attributes:
        what: What is wrong, as the beginning of a sentence.
        remedy: The command that repairs it.
    """

    what: str
    remedy: str


class Packages:
    """The packages that would be imported together with a torch.

    Args:
        torch: Version of torch, without its local part.
        torch_folder: Where torch is installed.
        system: `linux`, `windows` or `macos`.
        site: The one folder to look in; by default wherever Python finds packages.
    """

    def __init__(self, torch: str | None, torch_folder: Path | None, system: str, site: Path | None = None) -> None:
        self._torch, self._torch_folder, self._system, self._site = torch, torch_folder, system, site

    def distribution(self, name: str) -> importlib.metadata.Distribution | None:
        """Return the metadata of an installed package; of the one that Python would import, where there are two."""
        path = sys.path if self._site is None else [str(self._site)]
        return next(iter(importlib.metadata.Distribution.discover(name=name, path=path)), None)

    def version(self, name: str) -> str | None:
        """Return the version of an installed package."""
        found = self.distribution(name)
        return None if found is None else found.metadata["Version"]

    def versions(self) -> dict[str, str]:
        """Return the versions of all installed packages that a failure may depend on."""
        return {name: version for name in TOLD if (version := self.version(name)) is not None}

    def numpy_misfit(self) -> Misfit | None:
        """Return what is wrong between torch and NumPy, or None."""
        numpy = self.version("numpy")
        if self._torch is None or not at_least(numpy, "2") or self._torch_numpy() != 1:
            return None
        return Misfit(
            f"torch {self._torch} was built for NumPy 1 and cannot use the installed NumPy {numpy}",
            f"pip install {' '.join(self._older_numpy())}",
        )

    def opencv_misfit(self) -> Misfit | None:
        """Return what is wrong between OpenCV and NumPy, or None."""
        numpy = self.version("numpy")
        name = next(iter(self._opencv()), None)
        if name is None or not at_least(numpy, "2"):
            return None
        installed = self.version(name)
        if (_numpy_of(self._opencv_libraries()) or (2 if at_least(installed, _OPENCV_NUMPY_2) else 1)) != 1:
            return None
        newer = f"pip install -U {name}" if self._torch_numpy() != 1 else f"pip install {' '.join(self._older_numpy())}"
        return Misfit(f"{name} {installed} was built for NumPy 1 and cannot use the installed NumPy {numpy}", newer)

    def torchvision_wants(self) -> str | None:
        """Return the torch that the installed torchvision was built for, as it tells pip; None where it does not."""
        for wanted in self._requirements("torchvision"):
            exact = [each.version for each in wanted.specifier if each.operator == "=="]
            if wanted.name == "torch" and exact:
                return exact[0]
        return None

    def _torch_numpy(self) -> int:
        names = ("libtorch_python.so", "torch_python.dll") if self._torch_folder is not None else ()
        by_library = _numpy_of((self._torch_folder or Path()) / "lib" / name for name in names)
        first = _TORCH_NUMPY_2.get(self._system, _TORCH_NUMPY_2[""])
        return by_library or (2 if at_least(self._torch, first) else 1)

    def _opencv(self) -> list[str]:
        return [name for name in OPENCV if self.version(name) is not None]

    def _opencv_libraries(self) -> Iterator[Path]:
        if self._site is not None:
            folder: Path | None = self._site / "cv2"
        else:
            spec = importlib.util.find_spec("cv2")
            folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        if folder is not None:
            yield from sorted(path for path in folder.glob("cv2*") if path.suffix in (".so", ".pyd"))

    def _older_numpy(self) -> Iterator[str]:
        """Yield what to ask pip for: NumPy 1, and an OpenCV that does not insist on NumPy 2."""
        yield '"numpy<2"'
        for name in self._opencv():
            asked = [each for each in self._requirements(name) if each.name == "numpy"]
            if not all(each.specifier.contains(_LAST_NUMPY_1) for each in asked):
                yield f'"{name}<{_OPENCV_WITH_NUMPY_1}"'

    def _requirements(self, name: str) -> Iterator[Requirement]:
        """Yield what a package asks pip for on this system, extras left out."""
        found = self.distribution(name)
        for line in (found.requires if found is not None else None) or ():
            try:
                wanted = Requirement(line)
            except InvalidRequirement:
                continue
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                yield wanted


def at_least(version: str | None, first: str) -> bool:
    """Return whether a version is `first` or newer; one that is missing or no version is not."""
    try:
        return version is not None and Version(version) >= Version(first)
    except InvalidVersion:
        return False


def _numpy_of(libraries: Iterable[Path]) -> int | None:
    """Return the NumPy a library was built with, 1 or 2, from its own bytes; None where they do not tell."""
    for library in libraries:
        try:
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                for generation, mark in _NUMPY_MARKS:
                    if view.find(mark) >= 0:
                        return generation
        except (OSError, ValueError):
            continue
    return None
