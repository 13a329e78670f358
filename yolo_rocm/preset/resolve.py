"""From a preset's name to final values: files, overlays and arguments, one over the other, with the origin of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import PresetError
from ..hardware import Machine, detect
from ..utils.switch import Switch
from .batch import batch_of
from .evidence import evidence_for, in_short
from .files import config_root, find, read, user_presets
from .schema import SECTIONS, Preset, Settings, validate
from .select import PRESET_VARIABLE, PresetChoice, choose, wanted_by_user
from .step import memory_of


@dataclass
class _Layers:
    """Layers of a preset being merged, lowest first."""

    merged: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def add(self, data: Mapping[str, Any], origin: str) -> None:
        validate(data, origin)  # layer by layer, so that an error names the file or argument that holds the mistake
        for key, value in data.items():
            if key not in SECTIONS:
                self.merged[key] = value
                self.origins[key] = origin
                continue
            section = self.merged.setdefault(key, {})
            for name, item in (value or {}).items():
                section[name] = item
                self.origins[f"{key}.{name}"] = origin


def load_preset(source: str | Path | Mapping[str, Any], *, machine: Machine | None = None) -> Preset:
    """Load and validate a preset by name, file or dictionary, with the overlay of this operating system.

    Args:
        source: A preset's name (shipped, or a file in the user's own folder), what a card is sold as, `auto`, the path
            of a YAML file, or a dictionary of the same shape.
        machine: Facts to resolve against; those of this machine by default.

    Raises:
        PresetError: No such preset, or a key or value in it is wrong.
    """
    return resolve(source, machine=machine).preset


def resolve(
    source: str | Path | Mapping[str, Any] | None = "auto",
    rocm: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    machine: Machine | None = None,
) -> Settings:
    """Combine preset, overlay of the system, the user's file, the `rocm` section and arguments; later ones win.

    Args:
        source: As for `load_preset`.
        rocm: The user's own section over the preset, e.g. `{"conv": {"engine": "gemm"}}`.
        arguments: Ultralytics arguments of the call; `workers` also decides `loader.workers`.
        machine: Facts to resolve against; those of this machine by default.
    """
    machine = machine or detect()
    layers = _Layers()
    choice, own = _chain(source or "auto", machine)
    files = [layer for layer in own if layer[1].startswith("configs/")]
    for data, origin in files:
        layers.add(data, origin)
    for overlay in machine.overlays:
        path = config_root() / "os" / f"{overlay}.yaml"
        if path.is_file():
            layers.add(read(path), f"configs/os/{overlay}.yaml")
    for data, origin in own[len(files) :]:
        layers.add(data, origin)
    if rocm:
        if not isinstance(rocm, Mapping):
            raise PresetError(f"rocm must be a mapping of sections, got {type(rocm).__name__}.")
        layers.add(rocm, "rocm")
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    if "workers" in given:
        layers.add({"loader": {"workers": given["workers"]}}, "argument")
    _settle_evidence(layers, str(files[-1][0].get("name")) if files else "")
    merged = validate(layers.merged, "the merged preset")
    preset = _settled(merged, layers, machine)
    _check_consistent(preset, layers.origins)
    notes = (*choice.notes, *machine.warnings)
    by_card = merged.train.get("batch") == "auto" and "batch" in preset.train
    batch = partial(batch_of, preset, machine) if by_card else None
    settings = Settings(preset, layers.origins, choice.why, notes, batch)
    return settings.for_images(given.get("imgsz"))


def _settled(preset: Preset, layers: _Layers, machine: Machine) -> Preset:
    """Put what follows from the card in the place of `auto`: memory of a step, and a batch for it.

    Where memory is not known, Ultralytics' own default of the batch stays.
    """
    if preset.step.memory == "auto":
        memory, why = memory_of(preset, machine)
        layers.origins["step.memory"] = f"{layers.origins.get('step.memory', 'default')} (auto: {why})"
        preset = preset.model_copy(update={"step": preset.step.model_copy(update={"memory": memory})})
    if preset.train.get("batch") == "auto":
        batch, why = batch_of(preset, machine)
        train = {**preset.train, "batch": batch}
        if batch is None:
            del train["batch"], layers.origins["train.batch"]
        else:
            layers.origins["train.batch"] += f" (auto: {why})"
        preset = preset.model_copy(update={"train": train})
    return preset


def _settle_evidence(layers: _Layers, shipped: str) -> None:
    """Let the files of `yolo-rocm certify` say who ran a shipped preset on its card; a preset of the user says it."""
    if not layers.origins.get("evidence", "configs/").startswith("configs/"):
        return
    found = evidence_for(shipped, layers.merged.get("match") or {})
    if found:
        layers.merged["evidence"] = in_short(found)
        layers.origins["evidence"] = f"configs/evidence/{found[0].file}"


def _chain(
    source: str | Path | Mapping[str, Any], machine: Machine, above: tuple[Path, ...] = (), ask_user: bool = True
) -> tuple[PresetChoice, list[tuple[dict[str, Any], str]]]:
    """Return what was chosen and why, and its layers from the deepest base up.

    Args:
        source: As for `load_preset`.
        machine: Facts to resolve against.
        above: Files that have this one as their base.
        ask_user: Let `YOLO_ROCM_PRESET` say what `auto` is; not below the preset it names.
    """
    wanted = wanted_by_user() if ask_user and source == "auto" else None
    if wanted:
        choice, layers = _chain(wanted, machine, above, ask_user=False)
        return PresetChoice(choice.name, f"{choice.why} ({PRESET_VARIABLE})", choice.notes), layers
    path: Path | None = None
    notes: tuple[str, ...] = ()
    if isinstance(source, int) and not isinstance(source, bool):
        source = str(source)  # preset=6800: YAML and the command line make a number of a card's name
    if isinstance(source, Mapping):
        data, origin, why = dict(source), "preset argument", "preset given as a dictionary"
    elif not isinstance(source, str | Path):
        raise PresetError(
            f"a preset is a name, a YAML file or a dictionary, got {source!r}. `yolo-rocm presets` lists the names."
        )
    elif isinstance(source, Path) or Path(source).suffix in {".yaml", ".yml"}:
        path = Path(source)
        # Whole, because what begins with `configs/` is shipped.
        data, origin, why = read(path), str(path.absolute()), f"preset file {source}"
    else:
        # Below a preset of the user's own, a name means the shipped preset: their `rx5600xt` may have ours as its base.
        own = not any(each in user_presets().values() for each in above)
        chosen = choose(machine, own=own) if source == "auto" else PresetChoice(source, f"preset {source}, as asked")
        path, origin = find(chosen.name, own=own)
        data, why, notes = read(path), chosen.why, chosen.notes
        if not origin.startswith("configs/"):
            data.setdefault("name", path.stem)
    if path in above:
        raise PresetError(f"preset {path} is its own base: {' -> '.join(str(each) for each in (*above, path))}.")
    shipped = origin.startswith("configs/")
    base = data.get("base") or (None if shipped else "auto")
    below: list[tuple[dict[str, Any], str]] = []
    if base:
        below = _chain(base, machine, (*above, path) if path else above, ask_user)[1]
        if not shipped and "name" not in data:
            data["name"] = below[-1][0].get("name", "custom")
    return PresetChoice(str(data.get("name", source)), why, notes), [*below, (data, origin)]


def _check_consistent(preset: Preset, origins: Mapping[str, str]) -> None:
    if "vendor" in preset.conv.engine.split("+") and preset.conv.vendor == Switch.OFF:
        raise PresetError(
            f"conv.engine 'vendor' (from {origins.get('conv.engine', 'default')}) asks for the vendor library, "
            f"conv.vendor 'off' (from {origins.get('conv.vendor', 'default')}) switches it off. "
            "Set conv.vendor to 'on', or take engine 'aten' or 'gemm'."
        )
