"""Ultralytics' arguments: which ones it knows, and mistakes in them found before it has made a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, nearest
from .probes import ARGUMENT_CHECK, missing


def knows_argument(name: str) -> bool:
    """Probe: does the installed version take this training argument? They come and go between releases."""
    from ultralytics.utils import DEFAULT_CFG_DICT

    return name in DEFAULT_CFG_DICT


def default_argument(name: str) -> Any:
    """Return Ultralytics' own default of an argument."""
    from ultralytics.utils import DEFAULT_CFG_DICT

    return DEFAULT_CFG_DICT[name]


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments Ultralytics would refuse, before it has created a run folder.

    Raises:
        ConfigError: An argument is unknown; the nearest known ones are offered.
    """
    from ultralytics.utils import DEFAULT_CFG_DICT

    if missing(ARGUMENT_CHECK):  # then Ultralytics refuses them itself, with a run folder left behind
        return
    from ultralytics.cfg import _handle_deprecation

    known = {*DEFAULT_CFG_DICT, "augmentations", "save_dir", "trainer", "cfg"}
    if set(arguments) <= known:
        return
    for name in _handle_deprecation(dict(arguments)):
        if name not in known:
            raise ConfigError(
                f"unknown argument '{name}'{nearest(name, [*known, 'preset', 'rocm'])} "
                "`yolo cfg` lists the training arguments of the installed Ultralytics."
            )


def check_data(data: Any) -> None:
    """Refuse a data set that is neither there nor known to Ultralytics, before it has created a run folder.

    Raises:
        ConfigError: There is no such file or folder.
    """
    from ultralytics.utils import DATASETS_DIR, ROOT

    if not isinstance(data, str | Path) or "://" in str(data):
        return
    name = str(data)
    places = (Path(name), DATASETS_DIR / name, ROOT / "cfg" / "datasets" / name)
    downloads = {"mnist", "fashion-mnist", "cifar10", "cifar100", "caltech101", "caltech256"}
    if name.startswith("imagen") or name in downloads or any(place.exists() for place in places):
        return
    raise ConfigError(
        f"data {name!r} does not exist: no file or folder of that name here or in {DATASETS_DIR}. "
        "Give the path of a data set YAML, or of a folder for classification."
    )
