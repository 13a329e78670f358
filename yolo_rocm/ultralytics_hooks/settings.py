"""Ultralytics' settings: they do not name a clone of this project as the place for results of everything."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from ..utils.paths import is_clone
from .log import say

_FOLDERS: Final = {"runs_dir": "runs", "weights_dir": "weights"}


def leave_the_clone() -> None:
    """Let runs of this process go where a command was typed, where Ultralytics' settings name a clone of this project.

    The first import of an Ultralytics whose environment lies in a git clone writes `runs` and `weights` of that clone
    into the user's settings, for all later projects. The file stays as it is; other folders are the user's choice.
    """
    from ultralytics.utils import SETTINGS

    places = {name: Path(str(SETTINGS.get(name))) for name in _FOLDERS}
    changed = {
        name: folder
        for name, folder in _FOLDERS.items()
        if places[name].is_absolute() and places[name].name == folder and is_clone(places[name].parent)
    }
    if not changed:
        return
    dict.update(SETTINGS, changed)  # its own `update` would write the file
    for module in map(importlib.import_module, ("ultralytics.utils", "ultralytics.cfg")):
        if "runs_dir" in changed and hasattr(module, "RUNS_DIR"):  # a copy, in `cfg` up to 8.4.60 at least
            module.RUNS_DIR = Path(changed["runs_dir"])  # type: ignore[attr-defined]
    say(
        "settings.clone",
        f"results go to ./runs of the folder a command is typed in, not to {places[next(iter(changed))]}, which "
        "Ultralytics has in its settings (yolo settings) because an environment lies in that clone",
    )
