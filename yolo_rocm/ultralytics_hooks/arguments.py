"""Ultralytics' arguments: which ones it knows, and mistakes in them found before it has made a run folder."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, MissingFileError, nearest
from .probes import ARGUMENT_CHECK, missing

_YAML: Final = {".yaml", ".yml"}


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
        ConfigError: An argument is unknown, and the nearest known ones are offered, or its value is of a wrong kind.
    """
    from ultralytics.utils import DEFAULT_CFG_DICT

    if missing(ARGUMENT_CHECK):  # then Ultralytics refuses them itself, with a run folder left behind
        return
    from ultralytics.cfg import _handle_deprecation

    known = {*DEFAULT_CFG_DICT, "augmentations", "save_dir", "trainer", "cfg"}
    _check_values(arguments)
    if set(arguments) <= known:
        return
    for name in _handle_deprecation(dict(arguments)):
        if name not in known:
            raise ConfigError(
                f"unknown argument '{name}'{nearest(name, [*known, 'preset', 'rocm'])} "
                "`yolo cfg` lists the arguments of the installed Ultralytics."
            )


def _check_values(arguments: Mapping[str, Any]) -> None:
    """Let Ultralytics look at the values; what it cannot say of them now it says when it runs."""
    from ultralytics.cfg import check_cfg

    try:
        check_cfg(dict(arguments))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{str(error).rstrip('.')}. `yolo cfg` lists the arguments and their defaults.") from error


def check_data(data: Any) -> None:
    """Refuse a YAML of a data set that is neither there nor Ultralytics' own, before it has created a run folder.

    Folders, and names of data sets for classification, which are downloaded, are left to Ultralytics.

    Raises:
        ConfigError: There is no such file.
    """
    from ultralytics.utils import DATASETS_DIR, ROOT

    path = Path(str(data).strip())
    if not isinstance(data, str | Path) or "://" in str(data) or path.suffix not in _YAML:
        return
    carried = ROOT / "cfg" / "datasets" / path.name  # Ultralytics finds its own by the end of their paths
    is_carried = carried.exists() and carried.as_posix().endswith(f"/{path.as_posix()}")
    if is_carried or path.exists() or (DATASETS_DIR / path).exists():
        return
    known = [file.stem for folder in (Path(), carried.parent) for file in folder.glob("*.y*ml")]
    raise MissingFileError(
        f"data {str(data)!r} does not exist{nearest(path.stem, known)} It is neither here nor in {DATASETS_DIR}. "
        "Give the path of a data set YAML, or of a folder for classification."
    )


def check_mode(mode: str, model: Any, arguments: Mapping[str, Any]) -> None:
    """Refuse what a mode other than training cannot run with, before anything runs.

    Raises:
        ConfigError: An argument is unknown or missing, or a file it names is not there.
    """
    check_arguments(arguments)
    check_weights(model)
    check_data(arguments.get("data"))
    if mode in ("predict", "track"):
        check_source(arguments.get("source"))


def check_weights(model: Any) -> None:
    """Refuse a model that is neither there nor one Ultralytics downloads or carries.

    Raises:
        ConfigError: No model was given, or there is no such file.
    """
    if model is None or model == "":
        raise ConfigError("no model was given. Add model=, with weights such as best.pt or yolo11n.pt.")
    if missing(ARGUMENT_CHECK):  # then Ultralytics says it, when it looks for the file
        return
    from ultralytics.utils import SETTINGS
    from ultralytics.utils.checks import check_yolov5u_filename
    from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES

    name, path = str(model), Path(str(model))
    published = Path(check_yolov5u_filename(name, verbose=False)).name  # it downloads to the folder that was given
    if "://" in name or path.exists() or not path.suffix:
        return
    if path.suffix in _YAML or published in GITHUB_ASSETS_NAMES:  # Ultralytics searches and says where
        return
    if path.parent == Path() and (Path(SETTINGS["weights_dir"]) / name).exists():
        return
    raise MissingFileError(no_model(model))


def no_model(model: Any) -> str:
    """Say that there is no such model, and which name is near."""
    name, path = str(model), Path(str(model))
    known = [str(each) for each in path.parent.glob(f"*{path.suffix}")]
    if not missing(ARGUMENT_CHECK):
        from ultralytics.utils import ROOT
        from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES

        carried = [file.name for file in (ROOT / "cfg" / "models").rglob("*.yaml")]
        known += [each for each in (*GITHUB_ASSETS_NAMES, *carried) if each.endswith(path.suffix)]
    return (
        f"model {name!r} does not exist{nearest(name, known)} Give the path of weights, of a model YAML, of an "
        "exported model, or the name of a model that Ultralytics publishes."
    )


def check_source(source: Any) -> None:
    """Refuse a source of images that is not there.

    Raises:
        ConfigError: None was given, or there is no such file, folder or match.
    """
    if source is None or source == "":
        raise ConfigError("no source was given. Add source=, with an image, a video, a folder, a pattern or a camera.")
    name = str(source)
    if isinstance(source, list | tuple) or "://" in name or name.isnumeric() or name.lower().startswith("screen"):
        return
    if not (glob.glob(name, recursive=True) if "*" in name else Path(name).exists()):
        raise MissingFileError(
            f"source {name!r} does not exist. Give an image, a video, a folder, a pattern or a camera."
        )
