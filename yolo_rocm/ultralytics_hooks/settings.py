"""Ultralytics' settings: they do not name a clone of this project as the place for results of everything."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..utils.atomic import write_file
from ..utils.file_lock import locked
from ..utils.paths import cache_folder, is_clone
from .log import say

# Ultralytics copies these settings when it is imported; up to 8.4.60 at least, results go to the copy in `cfg`.
_COPIES: Final = (
    ("ultralytics.utils", "RUNS_DIR", "runs_dir"),
    ("ultralytics.cfg", "RUNS_DIR", "runs_dir"),
    ("ultralytics.utils", "DATASETS_DIR", "datasets_dir"),
    ("ultralytics.data.utils", "DATASETS_DIR", "datasets_dir"),
)


def leave_the_clone() -> None:
    """Put into Ultralytics' settings what it writes outside of a clone, where they name a clone of this project.

    The first import of an Ultralytics whose environment lies in a git clone writes `runs`, `weights` and perhaps
    `datasets` of that clone into the user's settings, for all later projects. Other folders are the user's choice.
    """
    from ultralytics.utils import SETTINGS

    outside = {"runs_dir": "runs", "weights_dir": "weights"}
    places = {name: Path(str(SETTINGS.get(name))) for name in (*outside, "datasets_dir")}
    clones = {
        name: places[name].parent
        for name, folder in outside.items()
        if places[name].is_absolute() and places[name].name == folder and is_clone(places[name].parent)
    }
    if not clones:
        return
    changed = {name: outside[name] for name in clones}
    clone = next(iter(clones.values()))
    if places["datasets_dir"] == clone / "datasets" and not places["datasets_dir"].exists():
        changed["datasets_dir"] = str(Path("datasets").resolve())
    file = Path(SETTINGS.file)
    kept = False
    with suppress(OSError, ValueError):  # where it cannot be written: for this process alone
        cache_folder().mkdir(parents=True, exist_ok=True)
        with locked(cache_folder() / "settings.lock", timeout_s=10):  # ranks and workers come here at the same time
            written = json.loads(file.read_text(encoding="utf-8"))
            kept = write_file(file.resolve(), json.dumps({**written, **changed}, indent=2))
    dict.update(SETTINGS, changed)  # its own `update` would write the file a second time, and not in one step
    for module, copy, name in _COPIES:
        place = sys.modules.get(module)
        if name in changed and hasattr(place, copy):
            setattr(place, copy, Path(changed[name]))
    say(
        "settings.clone",
        f"results go to ./runs of the folder a command is typed in. Ultralytics had written {clone}, because an "
        f"environment lies in it, into {file}, for all projects; it is taken out "
        f"{'there' if kept else 'for this run alone, because that file cannot be written'}",
    )
