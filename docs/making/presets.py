"""The presets as tables: which card, what to expect, on what evidence; and every key a preset may have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from yolo_rocm.hardware import INTEGRATED, Machine, family_of
from yolo_rocm.preset.files import FAMILY, config_root, read, shipped_presets
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.schema import SECTIONS, Preset
from yolo_rocm.utils.switch import Switch

from .compiled import executed
from .evidence import run_on_such_cards
from .markdown import cell, code, escaped, joined, table

# Facts on which nothing in a preset depends but the overlay of the system.
MACHINE: Final = Machine(system="linux", overlays=("linux",))
_ANY: Final = "any"
# In the order of their age, with what their cards are sold as.
_FAMILIES: Final = {
    "gcn": "GCN 5: Vega, Radeon VII, Instinct MI25 to MI60",
    "rdna1": "RDNA1: RX 5000",
    "rdna2": "RDNA2: RX 6000, Pro W6000, Radeon 600M",
    "rdna3": "RDNA3: RX 7000, Pro W7000, Radeon 700M",
    "rdna3.5": "RDNA3.5: inside Ryzen AI processors",
    "rdna4": "RDNA4: RX 9000, AI PRO R9700",
    "cdna": "CDNA: Instinct MI100 to MI355X",
    _ANY: "Any card, or none",
}


def family_title(family: str) -> str:
    """Return what the cards of a family are sold as."""
    return _FAMILIES[family]


def shipped() -> dict[str, list[Preset]]:
    """Return the shipped presets by family, oldest first; those for any card last."""
    found: dict[str, list[Preset]] = {family: [] for family in _FAMILIES}
    for name in shipped_presets():
        preset = resolve(name, machine=MACHINE).preset
        family = family_of(next(iter(preset.match.gfx), None)) or _ANY
        found["cdna" if family.startswith("cdna") else family].append(preset)
    found[_ANY].sort(key=lambda preset: not preset.base)  # the one for AMD cards first
    return {family: presets for family, presets in found.items() if presets}


def cards(folder: Path) -> str:
    """Return the short table: a row for each family, and for each preset that is for any card.

    Args:
        folder: Where the table of executed kernels is.
    """
    rows = []
    for family, presets in shipped().items():
        if family == _ANY:
            rows += [(p.title, *_expectations([p]), "-", run_on_such_cards([p], None)) for p in presets]
        else:
            run = executed(folder, family), run_on_such_cards(presets, family)
            rows.append((_FAMILIES[family], *_expectations(presets), *run))
    heads = ("card", "engine", "vendor library", "mixed precision", "batch")
    runs = ("Triton's convolutions and BatchNorm, executed in emulation", "run on such a card")
    return table((*heads, *runs), rows)


def _expectations(presets: list[Preset]) -> tuple[str, ...]:
    """Return what to expect of some presets in the words of their values."""
    engines = joined(code(preset.conv.engine) for preset in presets)
    vendors = joined(preset.conv.vendor for preset in presets)
    without = [preset for preset in presets if preset.train.get("amp") is False]
    some = f"off on {joined(preset.title.removeprefix('Radeon ') for preset in without)}"
    precision = "as you ask" if not without else "off" if len(without) == len(presets) else some
    sizes = sorted({preset.train["batch"] for preset in presets if "batch" in preset.train})
    batch = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else joined(map(str, sizes)) or _batch(presets[0])
    return engines, vendors, precision, batch


def _batch(preset: Preset) -> str:
    """Return the batch of a preset; one without a base leaves it to Ultralytics."""
    return str(preset.train.get("batch", "by memory" if preset.base else "Ultralytics' own"))


def families() -> str:
    """Return all presets, family by family, each family with the files that hold its values and their sources."""
    parts = []
    for family, presets in shipped().items():
        rows = (
            (
                f"[{preset.name}](../configs/gpu/{preset.name}.yaml)",
                joined(preset.match.gfx) or "-",
                preset.title + (", inside a processor" if _integrated(preset) else ""),
                f"{preset.match.vram_gb:g}" if preset.match.vram_gb else "-",
                _batch(preset),
                preset.conv.engine,
                preset.conv.vendor,
                {True: "on", False: "off"}.get(preset.train.get("amp", ""), "-"),
                escaped(preset.evidence),
            )
            for preset in presets
        )
        heads = ("preset", "gfx", "sold as", "GB", "batch at 640 px", "engine", "vendor", "amp", "evidence")
        parts += [f"### {_FAMILIES[family]}", table(heads, rows), _remarks(presets), _bases(presets)]
    return "\n\n".join(part for part in parts if part)


def _integrated(preset: Preset) -> bool:
    return bool(preset.match.gfx) and preset.match.gfx[0] in INTEGRATED


def _remarks(presets: list[Preset]) -> str:
    """Return the comments in the files of presets, which say where values come from."""
    lines = []
    for preset in presets:
        comments = []
        for line in (config_root() / "gpu" / f"{preset.name}.yaml").read_text(encoding="utf-8").splitlines():
            before, mark, words = line.partition("#")
            if mark and not before.strip():
                comments.append(words.strip())
            elif mark and re.search(r"\s$", before):
                comments.append(f"{code(before)}: {words.strip()}.")
        if comments:
            lines.append(f"- {code(preset.name)}: {' '.join(comments)}")
    return "\n".join(lines)


def _bases(presets: list[Preset]) -> str:
    """Return the files of the families below some presets, as they are: their comments are the sources."""
    names: dict[str, None] = {}
    for preset in presets:
        base = preset.base
        while base and base.startswith(FAMILY):
            names[base] = None
            base = read(config_root() / f"{base}.yaml").get("base")
    names.pop(f"{FAMILY}amd", None)  # shown once, above all families
    return "\n\n".join(_file(name) for name in names)


def _file(name: str) -> str:
    text = (config_root() / f"{name}.yaml").read_text(encoding="utf-8").strip()
    return f"<details><summary>configs/{name}.yaml</summary>\n\n```yaml\n{text}\n```\n\n</details>"


def keys() -> str:
    """Return every key of every section with its values, default and meaning, as the validation has them."""
    parts = []
    for section in SECTIONS:
        annotation = Preset.model_fields[section].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            doc = " ".join((annotation.__doc__ or "").split())
            parts += [f"### `{section}`", doc, _fields(annotation)]
        elif section == "env":
            model = get_args(annotation)[1]
            when = model.model_fields["when"].annotation
            parts += [
                "### `env`",
                "One entry for each environment variable:",
                _fields(model),
                "Its conditions, `when`:",
                _fields(when),
            ]
    return "\n\n".join(parts)


def _fields(model: type[BaseModel]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        empty = default is None or isinstance(default, BaseModel) or default in ("", [])
        shown = "must be given" if field.is_required() else "-" if empty else code(_as_yaml(default))
        if field.annotation is Switch:
            values = ", ".join(code(each) for each in Switch if _accepts(model, name, each))
        else:
            values = _values(field.annotation)
        rows.append((code(name), values, shown, field.description or ""))
    return table(("key", "values", "default", "meaning"), rows)


def _accepts(model: type[BaseModel], name: str, value: object) -> bool:
    try:
        model.model_validate({name: value})
    except ValidationError:
        return False
    return True


def _as_yaml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _values(annotation: Any) -> str:
    """Return what a key may hold, in words."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        names = {"bool": "true, false", "int": "whole number", "float": "number", "str": "text", "NoneType": "null"}
        names["When"] = "conditions"
        return names.get(annotation.__name__, annotation.__name__.lower())
    inside = [_values(each) if not isinstance(each, str) else code(each) for each in get_args(annotation)]
    if get_origin(annotation) is list:
        return f"list of {' or '.join(inside)}"
    return re.sub(r"(, )?\bnull\b", "", cell(", ".join(inside))).strip(", ")
