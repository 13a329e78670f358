"""The command line's arguments: an optional YAML file, then `key=value` pairs over it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, MissingFileError
from ..utils.limited_files import UnreadableError, parse_yaml, read_yaml
from . import files
from .yolo_defaults import own_file, yolo_defaults

# Ultralytics' tasks, and their smallest models.
TASKS: Final = {
    "detect": "yolo11n.pt",
    "segment": "yolo11n-seg.pt",
    "classify": "yolo11n-cls.pt",
    "pose": "yolo11n-pose.pt",
    "obb": "yolo11n-obb.pt",
    "semantic": "yolo26n-sem.pt",
    "depth": "yolo26n-depth.pt",
}
_WEIGHTS: Final = (".pt", ".onnx", ".torchscript", ".engine")
_YAML: Final = (".yaml", ".yml")
_FAMILIES: Final = ("yolo", "rtdetr")  # how the model files begin that Ultralytics carries
_VERBATIM: Final = ("name", "project")  # a run may be called 007 or 2024-01-01
_WORDS: Final = {
    "none": None, "null": None, "~": None,
    "true": True, "yes": True, "on": True,
    "false": False, "no": False, "off": False,
}  # fmt: skip
_SWITCHES: Final = ("half", "int8", "end2end", "nms")  # of which newer Ultralytics has no default that is on or off
_LITERALS: Final = (bool, int, float, str, list, tuple, dict)


def parse(words: Sequence[str]) -> dict[str, Any]:
    """Turn `cfg.yaml key=value rocm.conv.engine=gemm` into one dictionary.

    Ultralytics' own ways of saying the same are understood too: a task among the first words, `--key value`,
    `cfg=FILE`, words that belong together, as in `imgsz = 64` or `classes=[0, 1]`, and an argument that is on or off
    by its name alone, as in `resume`. Files among the first words are told by what they are: a model, a data set, or a
    configuration.

    Raises:
        ConfigError: A file is missing or not a YAML mapping, or a word is neither a file nor `key=value`.
    """
    result: dict[str, Any] = {}
    pairs = _joined(_paired(words))
    if any(word in TASKS for word in pairs):
        task = next(word for word in pairs if word in TASKS)
        pairs.remove(task)
        pairs.insert(len(pairs) and "=" not in pairs[0], f"task={task}")
    named: dict[str, str] = {}
    for word in [each for each in takewhile(_may_lead, pairs) if "=" not in each]:
        key = _file_for(word, named)
        if key not in named:
            named[key] = word
            pairs.remove(word)
    if "cfg" in named:
        result.update(read(Path(named.pop("cfg"))))
    pairs[:0] = [f"{key}={word}" for key, word in named.items()]
    # A file of `cfg=` is under all words too. Where it is not there, Ultralytics may find it in folders of its own.
    for word in [word for word in pairs if word.startswith("cfg=")]:
        file = Path(word.partition("=")[2])
        if file.is_file():
            result.update(read(file))
            pairs.remove(word)
    for word in pairs:
        key, separator, text = word.partition("=")
        if separator:
            _put(result, key.strip(), _value(key.strip(), text.strip()), word)
        elif _is_switch(word):
            result[word] = True
        else:
            raise ConfigError(
                f"expected key=value, got {word!r}. A YAML file may only come first; a text with spaces needs quotes."
            )
    return result


def _may_lead(word: str) -> bool:
    """Return whether a word is a file that needs no key, there or not, or may stand before one."""
    return word.startswith("task=") or ("=" not in word and (not word.isidentifier() or Path(word).is_file()))


def _file_for(word: str, named: Mapping[str, str]) -> str:
    """Return the key that a file is the value of.

    Args:
        word: The file.
        named: Files that came before it, by key.
    """
    path = Path(word)
    if path.suffix in _WEIGHTS:
        return "model"
    if path.is_file():
        with suppress(OSError, UnreadableError):
            found = read_yaml(path)
            keys = set(found) if isinstance(found, dict) else set()
            return "model" if "backbone" in keys else "data" if keys & {"names", "nc"} else "cfg"
    if path.suffix in _YAML and path.name.startswith(_FAMILIES):
        return "model"
    return "data" if path.suffix in _YAML and "model" in named else "cfg"


def _is_switch(word: str) -> bool:
    """Return whether a word alone turns an argument of Ultralytics on."""
    known = yolo_defaults() if word.isidentifier() and word != "val" else {}  # that is a mode, to `yolo` too
    return bool(known) and (word in _SWITCHES or isinstance(known.get(word), bool))


def _joined(words: Sequence[str]) -> list[str]:
    """Put together what spaces have taken apart: `imgsz = 64`, `classes=[0, 1]`."""
    joined: list[str] = []
    for word in words:
        last = joined[-1] if joined else ""
        goes_on = "=" in last and (last.endswith("=") or last.count("[") > last.count("]"))
        if (last and word.startswith("=")) or (goes_on and "=" not in word):
            joined[-1] = f"{last}{word}"
        else:
            joined.append(word)
    return [word.removesuffix(",") if "=" in word else word for word in joined]


def _paired(words: Sequence[str]) -> list[str]:
    """Turn `--key value` into `key=value`, and `--key` into `key` where it needs no value.

    Raises:
        ConfigError: An option without a value.
    """
    pairs: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and "=" not in word:
            if rest and not rest[0].startswith("--") and "=" not in rest[0]:
                word = f"{word}={rest.pop(0)}"
            elif not _is_switch(word.removeprefix("--")):
                raise ConfigError(f"{word} needs a value: {word.removeprefix('--')}=VALUE.")
        pairs.append(word.removeprefix("--"))
    return pairs


def read(path: Path) -> dict[str, Any]:
    """Read what a configuration file sets.

    Raises:
        ConfigError: It is missing, not YAML, not a mapping, or larger or deeper than any configuration.
    """
    data = files.read(path, "configuration file", ConfigError)
    # A file that lists every argument, as `yolo copy-cfg` makes them, says nothing by these.
    silent = {"task", *(name for name, value in yolo_defaults().items() if value is None)}
    return {
        str(name): value
        for name, value in data.items()
        if name != "cfg" and not (value is None and name in silent) and not (value is False and name == "resume")
    }


def _put(result: dict[str, Any], key: str, value: Any, word: str) -> None:
    *sections, name = key.split(".")
    if not name:
        raise ConfigError(f"expected key=value, got {word!r}.")
    if sections and sections[0] != "rocm":
        raise ConfigError(f"unknown key {key!r}. Only keys of the preset have dots, as in rocm.conv.engine=gemm.")
    place = result
    for section in sections:
        if place.get(section) is None:  # as a file has it that names a section and says nothing of it
            place[section] = {}
        below = place[section]
        if not isinstance(below, dict):
            raise ConfigError(f"{word!r}: '{section}' already holds {below!r}, not a section.")
        place = below
    place[name] = value


def _value(key: str, text: str) -> Any:
    """Read a value as `yolo` does: a word for nothing, yes or no, a literal of Python, or text as it is.

    YAML's lists and mappings of bare words are read too. Everything else of YAML would change a text: dates, times of
    day, and what stands behind ` #` in the name of a folder.
    """
    word = text.lower()
    if key in _VERBATIM and word != "none":
        return text
    if word in _WORDS:
        return _WORDS[word]
    found = _literal(text)
    if isinstance(found, _LITERALS):
        return found
    if text[:1] in ("[", "{"):
        with suppress(UnreadableError):
            return parse_yaml(text)
    return text


def _literal(text: str) -> Any:
    """Return what a text says in Python; None where it is none, or where Python would leave out a comment."""
    if "#" in text and text[0] not in "\"'[{(":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of `2in1`
            return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def with_file(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments over those of their `cfg=` file, which is here or among Ultralytics' own.

    Raises:
        MissingFileError: It is neither.
        ConfigError: It cannot be read.
    """
    given = dict(arguments)
    name = given.pop("cfg", None)
    if not name:  # Ultralytics takes an empty one for none
        return given
    path = next((path for path in (Path(str(name)), own_file(str(name))) if path.is_file()), None)
    if path is None:
        raise MissingFileError(f"configuration file {str(name)!r} does not exist. Give the path of a YAML file.")
    return {**read(path), **given}
