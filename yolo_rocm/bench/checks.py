"""What benchmarks refuse before they measure anything: values that mean nothing, and models that are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ..errors import ConfigError, YoloRocmError
from ..utils.atomic import problem_with
from ..utils.error_text import typed_line

T = TypeVar("T")
LEAST_OF_A_STEP: Final = 64  # smaller images end in a single pixel, of which BatchNorm cannot train on one image
# By name: the least that is allowed, and an example.
_WHOLE: Final = {
    "batch": (1, 16),
    "imgsz": (32, 640),
    "steps": (1, 15),
    "memory_mb": (1, 512),
    "images": (1, 32),
    "rounds": (1, 10),
    "calls": (1, 20),
    "workers": (0, 2),
    "epochs": (1, 3),
    "batches": (1, 10),
}
_SECONDS: Final = {"tune_s": 60, "seconds": 10}  # 0 means none
_ABOVE_ZERO: Final = {"vram_gb": 6, "limit_s": 600}
_FLAGS: Final = ("amp", "half")


def check(given: Mapping[str, Any], optional: Collection[str] = (), **least: int) -> None:
    """Refuse values that mean nothing; arguments of other names are not looked at.

    Args:
        given: Arguments of a benchmark.
        optional: Names that may be None.
        least: The least of some, where it is not the usual one.

    Raises:
        ConfigError: One of them is wrong.
    """
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None and name in optional:
            continue
        if name in _WHOLE:
            lowest, example = _WHOLE[name]
            lowest = least.get(name, lowest)
            right, allowed = number and isinstance(value, int) and value >= lowest, "a whole number of at least "
            allowed += f"{lowest}, such as {example}"
        elif name in _SECONDS:
            right, allowed = number and 0 <= value < math.inf, f"a number of seconds, such as {_SECONDS[name]}"
        elif name in _ABOVE_ZERO:
            right, allowed = number and 0 < value < math.inf, f"a number above 0, such as {_ABOVE_ZERO[name]}"
        else:
            right, allowed = name not in _FLAGS or isinstance(value, bool), "true or false"
        if not right:
            raise ConfigError(f"{name} must be {allowed}, got {value!r}.")


def loaded(load: Callable[[Any], T], model: Any, imgsz: int | None = None) -> T:
    """Return what a function makes of a model that was named.

    Args:
        load: Makes it, by Ultralytics.
        model: Weights or model YAML.
        imgsz: Size of the images that a torch module is to be given.

    Raises:
        ConfigError: Ultralytics can make nothing of it, or the module cannot take images of that size.
    """
    try:
        found = load(model)
    except (YoloRocmError, OSError, ImportError):  # these have words of their own
        raise
    except Exception as error:  # no mapping, no layer, no checkpoint: each is another one
        raise ConfigError(
            f"{str(model)!r} is no model that Ultralytics can build ({typed_line(error)}). Give weights "
            "such as best.pt, or a model YAML such as yolov8n.yaml."
        ) from error
    stride = 1 if imgsz is None else int(max(getattr(found, "stride", [1])))
    if imgsz is not None and imgsz % stride:
        raise ConfigError(
            f"imgsz must be a multiple of {stride}, the stride of {str(model)!r}, got {imgsz}. Give "
            f"imgsz={-(-imgsz // stride) * stride}."
        )
    return found


def folder(out: Any, name: str = "out") -> Path:
    """Return a folder for results, which is made when there is something to write.

    Args:
        out: The folder.
        name: What names it on the command line.

    Raises:
        ConfigError: A file is in its place, or nothing can be written there.
    """
    path = Path(str(out))
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ConfigError(f"{name} must be a folder, got '{path}': '{part}' is a file. Give another folder.")
    problem = problem_with(path)
    if problem is not None:
        raise ConfigError(
            f"nothing can be written in {name}='{path}': {problem.strerror or problem}. Give another folder."
        )
    return path
