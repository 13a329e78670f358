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
# By name: what a value has to be, and an example.
_WHOLE: Final = "a whole number of at least {}, such as {}"
_SECONDS: Final = "a number of seconds, such as {1}"
_ABOVE_ZERO: Final = "a number above 0, such as {1}"
_FLAG: Final = "true or false"
_RULES: Final = {
    **{name: (_WHOLE, 1, example) for name, example in (("batch", 16), ("steps", 15), ("memory_mb", 512))},
    **{name: (_WHOLE, 1, example) for name, example in (("images", 32), ("epochs", 3), ("batches", 10))},
    **{
        "imgsz": (_WHOLE, 32, 640),
        "workers": (_WHOLE, 0, 2),
        "tune_s": (_SECONDS, 0, 60),
        "seconds": (_SECONDS, 0, 10),
    },
    **{"vram_gb": (_ABOVE_ZERO, 0, 6), "limit_s": (_ABOVE_ZERO, 0, 600), "amp": (_FLAG, 0, True)},
}


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
        if name not in _RULES or (value is None and name in optional):
            continue
        words, lowest, example = _RULES[name]
        lowest = least.get(name, lowest)
        if words == _FLAG:
            right = isinstance(value, bool)
        elif isinstance(value, bool) or not isinstance(value, int if words == _WHOLE else int | float):
            right = False
        else:
            right = lowest <= value < math.inf and (value > 0 or words != _ABOVE_ZERO)
        if not right:
            raise ConfigError(f"{name} must be {words.format(lowest, example)}, got {value!r}.")


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
