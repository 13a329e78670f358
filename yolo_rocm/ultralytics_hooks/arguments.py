"""Ultralytics' arguments: which ones it knows, and mistakes in them found before it has made a run folder."""

from __future__ import annotations

import difflib
import glob
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, MissingFileError, nearest
from .probes import ARGUMENT_CHECK, missing

# Classification data sets that Ultralytics downloads, some in several sizes.
_DOWNLOADED: Final = re.compile(r"(fashion-)?mnist(160)?|imagenet(te|\d*)\d*|imagewoof\d*|cifar100?|caltech(101|256)")


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
    """Refuse a data set that is neither there nor known to Ultralytics, before it has created a run folder.

    Raises:
        ConfigError: There is no such file or folder.
    """
    from ultralytics.utils import DATASETS_DIR, ROOT

    if not isinstance(data, str | Path) or "://" in str(data):
        return
    name = str(data)
    places = (Path(name), DATASETS_DIR / name, ROOT / "cfg" / "datasets" / name)
    if _DOWNLOADED.fullmatch(name) or any(place.exists() for place in places):
        return
    # Ultralytics also finds its own by the end of their paths.
    carried = ROOT / "cfg" / "datasets" / Path(name.strip()).name
    if carried.exists() and f"/{carried.as_posix()}".endswith(f"/{Path(name.strip()).as_posix()}"):
        return
    # By their stems: all of them end alike.
    files = [*Path().glob("*.y*ml"), *places[2].parent.glob("*.yaml")]
    close = difflib.get_close_matches(Path(name).stem, [file.stem for file in files], n=1, cutoff=0.7)
    meant = next((file.name for file in files if file.stem in close), None)
    told = f"; did you mean {meant!r}?" if meant else "."
    raise MissingFileError(
        f"data {name!r} does not exist{told} It is neither here nor in {DATASETS_DIR}. "
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
    if mode == "benchmark" and "format" in arguments:
        _check_format(str(arguments["format"]).lower())


def _check_format(format: str) -> None:
    if not benchmark_takes_format():
        raise ConfigError("this Ultralytics benchmarks all formats, not one. Leave out format=, or update Ultralytics.")
    from ultralytics.engine.exporter import export_formats

    formats = list(export_formats()["Argument"])
    if format and format not in formats:
        raise ConfigError(f"unknown format {format!r}{nearest(format, formats)} Allowed: {', '.join(formats)}.")


def benchmark_takes_format() -> bool:
    """Probe: can `benchmark` be told one format? 8.3.0 goes through all of them and drops the argument."""
    from ultralytics.engine.model import Model

    return "format" in inspect.signature(Model.benchmark).parameters


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
    if path.suffix in {".yaml", ".yml"} or published in GITHUB_ASSETS_NAMES:  # Ultralytics searches and says where
        return
    if path.parent == Path() and (Path(SETTINGS["weights_dir"]) / name).exists():
        return
    raise MissingFileError(no_model(model))


def no_model(model: Any) -> str:
    """Say that there is no such model, and which name is near."""
    name, path = str(model), Path(str(model))
    here = [str(each) for each in path.parent.glob(f"*{path.suffix}")]
    return (
        f"model {name!r} does not exist{nearest(name, [*here, *_carried(path.suffix)])} "
        "Give the path of weights, of a model YAML, of an exported model, or the name of a model that Ultralytics "
        "publishes."
    )


def _carried(suffix: str) -> list[str]:
    """Return the names of models that Ultralytics has or publishes."""
    if missing(ARGUMENT_CHECK):
        return []
    from ultralytics.utils import ROOT
    from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES

    if suffix not in {".yaml", ".yml"}:
        return [name for name in GITHUB_ASSETS_NAMES if name.endswith(suffix)]
    files = [path.name for path in (ROOT / "cfg" / "models").rglob("*.yaml")]
    return [*files, *(re.sub(r"^(yolov?\d+)", rf"\g<1>{scale}", name, count=1) for name in files for scale in "nsmlx")]


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
