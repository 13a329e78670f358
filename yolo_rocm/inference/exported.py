"""A model exported for another runtime: made once, beside its weights, whole or not at all, again when stale."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .._version import __version__
from ..errors import ExportError
from ..hardware import detect
from ..utils.atomic import free_bytes, problem_with, write_file
from ..utils.child_process import run_module
from ..utils.file_lock import locked
from ..utils.limited_files import read_json
from ..utils.paths import cache_folder

_FACTS: Final = "made_from.json"
_ROOM: Final = 8  # times the weights: fp32, debug files and a copy
_LIMIT_S: Final = 1200.0
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Attributes:
        file: The file or folder that Ultralytics takes.
        seconds: How long the export took; 0 where it was there already.
    """

    file: Path
    seconds: float = 0.0


def digest(weights: Path) -> str:
    """Return what tells weights from others: a hash of the file, computed once for each state of it."""
    stat = weights.stat()
    return _digest(weights.absolute(), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=64)
def _digest(weights: Path, mtime_ns: int, size: int) -> str:
    digested = hashlib.sha256()
    with weights.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digested.update(chunk)
    return digested.hexdigest()[:32]


def folder_for(weights: Path) -> Path:
    """Return where a model's exported forms are kept: beside the weights, or in the cache where that is read-only."""
    beside = weights.absolute().parent / f"{weights.stem}_yolo_rocm"
    if problem_with(beside) is None:
        return beside
    return cache_folder() / "exported" / digest(weights)


def exported(weights: Path, format: str, arguments: Mapping[str, Any], limit_s: float = _LIMIT_S) -> Exported:
    """Return a model in another format, exported now if that was not done before for these very weights.

    Args:
        weights: The weights.
        format: Ultralytics' name of the format.
        arguments: What else `export` is given, such as `imgsz`.
        limit_s: Seconds after which an export has failed.

    Raises:
        ExportError: It cannot be exported; nothing is left behind.
    """
    where = folder_for(weights)
    words = (f"{key}-{value}".lower() for key, value in sorted(arguments.items()))
    place = where / "-".join((format, *words))
    facts = {"weights": digest(weights), "yolo_rocm": __version__, **_versions()}
    with _turn(where):
        known = _usable(place, facts)
        if known is not None:
            return Exported(known)
        began = time.monotonic()
        with new_export(weights, format, arguments, where, limit_s) as product:
            seconds = round(time.monotonic() - began, 2)
            more = {**facts, "file": product.name, "format": format, "arguments": dict(arguments), "seconds": seconds}
            write_file(product.parent / _FACTS, json.dumps(more, indent=1))
            put_in_place(product.parent, place)
        return Exported(place / product.name, seconds)


def _versions() -> dict[str, str | None]:
    """Return what an export depends on: another pnnx may write another model."""
    packages = detect().packages
    return {name: packages.version(name) for name in ("ultralytics", "torch", "onnx", "pnnx", "openvino")}


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let processes that export the same weights wait for each other."""
    with contextlib.ExitStack() as held:
        with _written_in(folder):
            held.enter_context(locked(folder / ".lock"))
        yield


@contextmanager
def _written_in(folder: Path) -> Iterator[None]:
    """Make a folder, and have its refusal as an error of the export."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = error.strerror or error
        raise ExportError(f"nothing can be written in {folder}: {why}. Make room there.") from error


def _usable(place: Path, facts: Mapping[str, Any]) -> Path | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = read_json(place / _FACTS)
        file = place / str(found["file"])
        if file.exists() and all(found.get(key) == value for key, value in facts.items()):
            return file
    return None


@contextmanager
def new_export(
    weights: Path,
    format: str,
    arguments: Mapping[str, Any],
    where: Path,
    limit_s: float = _LIMIT_S,
) -> Iterator[Path]:
    """Export in a process of its own to a folder that is removed at the end; whoever wants the product moves it.

    Yields:
        The file or folder that was made, alone in its folder.

    Raises:
        ExportError: It cannot be exported.
    """
    need, free = _ROOM * weights.stat().st_size, free_bytes(where)
    if free is not None and free < need:
        raise ExportError(
            f"an export of {weights.name} needs about {need >> 20} MB where it goes, and {where} has {free >> 20} MB. "
            "Make room there."
        )
    with _written_in(where):
        stage = Path(tempfile.mkdtemp(prefix=".export-", dir=where))
    try:
        settings = {"weights": str(weights), "format": format, "arguments": dict(arguments), "folder": str(stage)}
        ended = run_module("yolo_rocm.inference.export_child", settings, limit_s)
        if ended.error:
            raise ExportError(f"{weights.name} cannot be exported to {format}: {ended.error}")
        yield Path(ended.answer["file"])
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def put_in_place(new: Path, place: Path) -> None:
    """Give a whole file or folder its name; what had the name before is there until then.

    Raises:
        ExportError: The file system refuses.
    """
    old = place.with_name(f".old-{place.name}")
    try:
        _remove(old)
        if place.is_dir():  # a folder with something in it cannot be replaced in one step
            os.replace(place, old)
        os.replace(new, place)
    except OSError as error:
        with contextlib.suppress(OSError):
            if old.exists() and not place.exists():
                os.replace(old, place)
        raise ExportError(f"{place} cannot be written: {error.strerror or error}.") from error
    finally:
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
