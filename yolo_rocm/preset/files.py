"""The files presets come from: those shipped, the user's own, and the names both answer to."""

from __future__ import annotations

import difflib
import re
from itertools import product
from pathlib import Path
from typing import Any, Final

from ..errors import PresetError, YoloRocmError, nearest
from ..utils.limited_files import UnreadableError, read_yaml
from ..utils.paths import user_presets_folder

FAMILY: Final = "family/"
_FEW: Final = 5
_MEMORY: Final = re.compile(r"\b\d+ ?gb\b", re.IGNORECASE)


def config_root() -> Path:
    """Return the folder of the shipped presets: inside the wheel, or at the top of a checkout."""
    inside = Path(__file__).parents[1] / "configs"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "configs"


def shipped_presets() -> dict[str, Path]:
    """Return the shipped presets by name."""
    return _by_name(config_root() / "gpu")


def user_presets() -> dict[str, Path]:
    """Return the presets in the user's own folder by name."""
    return _by_name(user_presets_folder())


def _by_name(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def presets() -> list[str]:
    """Return the names of all presets: those shipped, and those in the user's own folder."""
    return sorted({**shipped_presets(), **user_presets()})


def find(name: str, *, own: bool = True) -> tuple[Path, str]:
    """Return the file of a preset and its name as an origin of values.

    Args:
        name: A preset's name, what a card is sold as (`RX 6650 XT`), or `family/NAME`.
        own: Look into the user's folder first.

    Raises:
        PresetError: There is none of this name.
    """
    if name.startswith(FAMILY):
        path = config_root() / f"{name}.yaml"
        if path.is_file() and path.parent == config_root() / "family":
            return path, f"configs/{name}.yaml"
    mine = user_presets() if own else {}
    if name in mine:
        return mine[name], str(mine[name].absolute())  # what begins with `configs/` is shipped
    shipped = shipped_presets()
    found = name if name in shipped else _sold_as(name, shipped)
    if found is None:
        near_it = near(name)
        raise PresetError(
            f"unknown preset {name!r}{nearest(name, [*mine, *shipped])} "
            f"{'Near it: ' + ', '.join(near_it) + '. ' if near_it else ''}"
            "`yolo-rocm presets` lists all of them; `auto`, a YAML file and a dictionary are allowed too."
        )
    return shipped[found], f"configs/gpu/{found}.yaml"


def plain(name: str | None) -> str:
    """Reduce a name to what tells cards apart: `AMD Radeon RX 6650 XT` -> `rx6650xt`."""
    return re.sub(r"[^a-z0-9/]|\b(?:amd|radeon|instinct)\b", "", (name or "").lower())


def without_memory(name: str) -> str:
    """Return the name of a card without its memory: `RX 9070 XT 16GB` -> `RX 9070 XT `."""
    return _MEMORY.sub("", name)


def _sold_as(name: str, shipped: dict[str, Path]) -> str | None:
    """Return the preset of a card as its box names it; people leave out the `RX` or the `Pro`.

    A name between brackets counts too: `Strix Halo`. A target such as `gfx1151` will do where one preset is for it.
    Shops add the memory, which is part of some names: `RX 9070 XT 16GB`, `MI50 32GB`.
    """
    for wanted, prefix in product((plain(name), plain(without_memory(name))), ("", "rx", "pro")):
        for preset, path in shipped.items():
            data = read(path)
            names = [preset, *(data.get("match") or {}).get("names", []), *str(data.get("title", "")).split(",")]
            parts = {plain(part) for each in names for part in (each, *re.split(r"[()]", each))}
            if wanted and prefix + wanted in parts:
                return preset
    alone = _of_target(name, shipped)
    return alone[0] if len(alone) == 1 else None


def _of_target(name: str, shipped: dict[str, Path]) -> list[str]:
    """Return the presets that are for a target, where the name is one."""
    wanted = name.strip().lower()
    if not re.fullmatch(r"gfx[0-9a-f]{3,4}", wanted):
        return []
    return [preset for preset, path in shipped.items() if wanted in (read(path).get("match") or {}).get("gfx", [])]


def near(name: str) -> list[str]:
    """Return the presets for a target, or a handful whose name is like a name that is none, or has a part of it."""
    known, wanted = presets(), plain(name)
    holding = [preset for preset in known if len(wanted) > 2 and wanted in plain(preset)]
    close = difflib.get_close_matches(wanted, known, n=_FEW, cutoff=0.5)
    return _of_target(name, shipped_presets()) or list(dict.fromkeys([*holding, *close]))[:_FEW]


def read(path: Path, what: str = "preset", wrong: type[YoloRocmError] = PresetError) -> dict[str, Any]:
    """Read a preset, or another YAML file of the user.

    Args:
        path: The file.
        what: What it is, for messages.
        wrong: The error raised.

    Raises:
        YoloRocmError: It is missing, not YAML, not a mapping, or larger or deeper than any such file.
    """
    try:
        data = read_yaml(path)
    except (OSError, UnreadableError) as error:
        raise wrong(f"{what} {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(data, dict):
        raise wrong(f"{what} {path} must hold `key: value` lines, got a {type(data).__name__}.")
    return data
