"""A model exported for another runtime: made once, beside its weights, whole or not at all, again when stale."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..errors import ExportError
from ..hardware import detect
from ..utils.atomic import problem_with, write_file
from ..utils.child_process import run_module
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.paths import cache_folder

_FACTS: Final = "made_from.json"
_LIMIT_S: Final = 1200.0


def digest(weights: Path) -> str:
    """Return what tells weights from others."""
    return hashlib.sha256(weights.read_bytes()).hexdigest()[:32]


def exported(weights: Path, format: str, arguments: Mapping[str, Any]) -> Path:
    """Return a model in another format, exported now if that was not done before for these very weights.

    Args:
        weights: The weights.
        format: Ultralytics' name of the format.
        arguments: What else `export` is given, such as `imgsz`.

    Returns:
        The file or folder that Ultralytics takes.

    Raises:
        ExportError: It cannot be exported; nothing is left behind.
    """
    where = weights.absolute().parent / f"{weights.stem}_yolo_rocm"
    if problem_with(where) is not None:  # read-only weights
        where = cache_folder() / "exported" / digest(weights)
    place = where / "-".join((format, *(f"{key}-{value}".lower() for key, value in sorted(arguments.items()))))
    packages = detect().packages  # another pnnx may write another model
    versions = {name: packages.version(name) for name in ("ultralytics", "torch", "onnx", "pnnx", "openvino")}
    facts = {"weights": digest(weights), "yolo_rocm": __version__, **versions}
    with _writing_in(where), locked(where / ".lock"):
        file = _usable(place, facts)
        if file is None:
            with new_export(weights, format, arguments, where) as product:
                write_file(product.parent / _FACTS, json.dumps({**facts, "file": product.name}, indent=1))
                put_in_place(product.parent, place)
            file = place / product.name
        return file


def _usable(place: Path, facts: Mapping[str, Any]) -> Path | None:
    """Return the model in a folder, if it is there and was made from the same."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        made_from = read_json(place / _FACTS)
        file = place / str(made_from["file"])
        if file.exists() and all(made_from.get(key) == value for key, value in facts.items()):
            return file
    return None


@contextmanager
def new_export(weights: Path, format: str, arguments: Mapping[str, Any], where: Path) -> Iterator[Path]:
    """Export in a process of its own to a folder that is removed at the end, unless the product was moved before.

    Yields:
        The file or folder that was made, alone in its folder.

    Raises:
        ExportError: It cannot be exported.
    """
    with _writing_in(where):
        stage = Path(tempfile.mkdtemp(prefix=".export-", dir=where))
    try:
        settings = {"weights": str(weights), "format": format, "arguments": dict(arguments), "folder": str(stage)}
        result = run_module("yolo_rocm.inference.export_child", settings, _LIMIT_S)
        if result.error:
            raise ExportError(f"{weights.name} cannot be exported to {format}: {result.error}")
        yield Path(result.answer["file"])
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _writing_in(folder: Path) -> Iterator[None]:
    """Make a folder; where the system refuses to write there, that is an error of the export."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = error.strerror or error
        raise ExportError(f"nothing can be written in {folder}: {why}. Make room there.") from error


def put_in_place(new: Path, place: Path) -> None:
    """Give a whole file or folder its name; a folder that had the name before is away for a moment only.

    Raises:
        ExportError: The file system refuses; what was there stays.
    """
    old = place.with_name(f".old-{place.name}")
    with _writing_in(place.parent):
        shutil.rmtree(old, ignore_errors=True)
        if place.is_dir():  # a folder with something in it cannot be replaced in one step
            os.replace(place, old)
        try:
            os.replace(new, place)
        except OSError:
            if old.exists():
                os.replace(old, place)
            raise
        shutil.rmtree(old, ignore_errors=True)
