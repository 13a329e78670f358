"""Presets: what is known to be right for a card, as validated data with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .errors import PresetError, nearest
from .hardware import Machine, detect

SECTIONS: Final = ("match", "env", "conv", "loader", "train")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Section):
    """Which cards a preset is for."""

    gfx: list[str] = Field(default_factory=list, description="true gfx targets, e.g. gfx1010")
    names: list[str] = Field(default_factory=list, description="marketing names, for people")
    vram_gb: float | None = Field(default=None, gt=0, description="memory of the card, to tell cards of one gfx apart")


class When(_Section):
    """Condition of an environment variable; every given part must hold."""

    os: list[Literal["linux", "windows", "macos", "wsl", "container"]] | None = None
    torch: str | None = Field(default=None, description="version specifier, e.g. '<2'")
    hip: str | None = Field(default=None, description="version specifier of torch's ROCm, e.g. '<5.3'")


class Variable(_Section):
    """An environment variable, when it is sound to set it, and why."""

    value: str
    when: When = When()
    why: str = ""

    @field_validator("value", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Conv(_Section):
    """How convolutions are computed."""

    engine: Literal["auto", "vendor", "aten", "gemm"] = "auto"
    devices: list[Literal["cuda", "cpu"]] = Field(default=["cuda"], min_length=1)
    vendor: Literal["on", "off"] = Field(default="off", description="MIOpen/cuDNN for the whole run, BatchNorm too")
    memory_mb: int | None = Field(default=None, ge=1, description="workspace of one convolution, MiB")
    tune: Literal["auto", "on", "off"] = Field(default="auto", description="measure algorithms; auto: on a GPU")

    @field_validator("vendor", "tune", mode="before")
    @classmethod
    def _yaml_reads_on_as_true(cls, value: Any) -> Any:
        return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class Loader(_Section):
    """How batches are loaded."""

    context: Literal["spawn", "forkserver", "fork"] = Field(default="spawn", description="start method of workers")
    workers: int | None = Field(default=None, ge=0, description="at most; fewer where cores or memory are short")
    persistent: bool = Field(default=True, description="keep workers across epochs")
    pin_memory: bool | Literal["auto"] = Field(default="auto", description="auto: where it works and fits")
    prefetch: int | None = Field(default=None, ge=1, description="batches each worker holds ready")
    timeout: float = Field(default=120, ge=0, description="seconds to wait for a batch; 0 waits for ever")
    reproducible: Literal["worker", "strict"] = Field(
        default="worker", description="strict: the same batches for any number of workers"
    )
    skip_broken: bool = Field(default=True, description="replace samples whose file cannot be read")
    mosaic_mb: int | None = Field(default=512, ge=1, description="memory of a worker for the images of mosaics, MiB")
    device_prefetch: bool | Literal["auto"] = Field(
        default=False, description="copy the next batch ahead of time; auto: on cards above 8 GB"
    )
    device_augment: bool = Field(default=False, description="HSV and flips on the device; may differ by one level")
    reduced_decode: bool = Field(default=False, description="decode large JPEGs at a fraction of their size")


class Preset(_Section):
    """A validated preset. `evidence` says who ran it on the card, or `none`."""

    name: str = "custom"
    title: str = ""
    base: str | None = None
    match: Match = Match()
    env: dict[str, Variable] = Field(default_factory=dict)
    conv: Conv = Conv()
    loader: Loader = Loader()
    train: dict[str, Any] = Field(default_factory=dict, description="Ultralytics arguments")
    evidence: str = "none"


@dataclass(frozen=True)
class Settings:
    """A preset with everything laid over it: final values, where each came from, and what is worth saying."""

    preset: Preset
    origins: dict[str, str]
    why: str
    explicit: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield (key, value, origin) for every final value, defaults included."""
        for section in SECTIONS:
            value = getattr(self.preset, section)
            items = value.items() if isinstance(value, dict) else ((key, getattr(value, key)) for key in _keys(value))
            for key, item in items:
                shown = item.value if isinstance(item, Variable) else item
                name = f"{section}.{key}"
                yield name, shown, self.origins.get(name, "default")
        yield "evidence", self.preset.evidence, self.origins.get("evidence", "default")

    def as_dict(self) -> dict[str, Any]:
        """Return preset name, reason, and every value with its origin as plain data for JSON."""
        values = {key: {"value": value, "origin": origin} for key, value, origin in self.rows()}
        return {"preset": self.preset.name, "why": self.why, "values": values, "notes": list(self.notes)}


@dataclass
class _Layers:
    """Layers of a preset being merged, lowest first."""

    merged: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    explicit: set[str] = field(default_factory=set)

    def add(self, data: Mapping[str, Any], origin: str, explicit: bool = False) -> None:
        _validate(data, origin)  # layer by layer, so that an error names the file or argument that holds the mistake
        for key, value in data.items():
            if key not in SECTIONS:
                self.merged[key] = value
                self.origins[key] = origin
                continue
            section = self.merged.setdefault(key, {})
            for name, item in (value or {}).items():
                section[name] = item
                self.origins[f"{key}.{name}"] = origin
                if explicit:
                    self.explicit.add(f"{key}.{name}")


def config_root() -> Path:
    """Return the folder of the shipped presets: inside the wheel, or at the top of a checkout."""
    inside = Path(__file__).parent / "configs"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "configs"


def presets() -> list[str]:
    """Return the names of the shipped presets."""
    return sorted(path.stem for path in (config_root() / "gpu").glob("*.yaml"))


def load_preset(source: str | Path | Mapping[str, Any], *, machine: Machine | None = None) -> Preset:
    """Load and validate a preset by name, file or dictionary, with the overlay of this operating system.

    Args:
        source: A shipped preset's name, `auto`, the path of a YAML file, or a dictionary of the same shape.
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
    """Lay preset, operating-system overlay, the user's file, the `rocm` section and arguments over each other.

    Args:
        source: As for `load_preset`.
        rocm: The user's own section over the preset, e.g. `{"conv": {"engine": "gemm"}}`.
        arguments: Ultralytics arguments of the call; `workers` also decides `loader.workers`.
        machine: Facts to resolve against; those of this machine by default.
    """
    machine = machine or detect()
    layers = _Layers()
    why, own = _chain(source or "auto", machine)
    files = [layer for layer in own if layer[1].startswith("configs/")]
    for data, origin in files:
        layers.add(data, origin)
    for overlay in machine.overlays:
        path = config_root() / "os" / f"{overlay}.yaml"
        if path.is_file():
            layers.add(_read(path), f"configs/os/{overlay}.yaml")
    for data, origin in own[len(files) :]:
        layers.add(data, origin, explicit=True)
    if rocm:
        if not isinstance(rocm, Mapping):
            raise PresetError(f"rocm must be a mapping of sections, got {type(rocm).__name__}.")
        layers.add(rocm, "rocm", explicit=True)
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    if "workers" in given:
        layers.add({"loader": {"workers": given["workers"]}}, "argument", explicit=True)
    preset = _validate(layers.merged, "the merged preset")
    _check_consistent(preset, layers.origins)
    return Settings(preset, layers.origins, why, frozenset(layers.explicit), tuple(machine.warnings))


def _chain(source: str | Path | Mapping[str, Any], machine: Machine) -> tuple[str, list[tuple[dict[str, Any], str]]]:
    """Return why this preset, and its layers from the deepest base up."""
    if isinstance(source, Mapping):
        data, origin, why = dict(source), "preset argument", "preset given as a dictionary"
    elif source == "auto":
        name, why = _choose(machine)
        data, origin = _read(config_root() / "gpu" / f"{name}.yaml"), f"configs/gpu/{name}.yaml"
    elif Path(source).suffix in {".yaml", ".yml"} or isinstance(source, Path):
        data, origin, why = _read(Path(source)), str(source), f"preset file {source}"
    else:
        path = config_root() / "gpu" / f"{source}.yaml"
        if not path.is_file():
            raise PresetError(
                f"unknown preset {source!r}{nearest(source, presets())} "
                f"Allowed: auto, {', '.join(presets())}, a YAML file or a dictionary. `yolo-rocm presets` lists them."
            )
        data, origin, why = _read(path), f"configs/gpu/{source}.yaml", f"preset {source}, as asked"
    shipped = origin.startswith("configs/")
    base = data.get("base") or (None if shipped else "auto")
    below = _chain(base, machine)[1] if base else []
    if below and not shipped and "name" not in data:
        data["name"] = below[-1][0].get("name", "custom")
    return why, [*below, (data, origin)]


def _choose(machine: Machine) -> tuple[str, str]:
    """Pick the shipped preset for this machine and say why."""
    gpu = machine.gpu
    if gpu is None:
        return "cpu", f"preset cpu: {machine.no_gpu_reason}"
    if gpu.vendor == "nvidia":
        return "nvidia", f"preset nvidia: {gpu}"
    fitting = []
    for name in presets():
        match = Match(**(_read(config_root() / "gpu" / f"{name}.yaml").get("match") or {}))
        if gpu.gfx in match.gfx:
            fitting.append((abs((match.vram_gb or 1e6) - (gpu.vram_gb or 0)), name))
    if fitting:
        name = min(fitting)[1]
        return name, f"preset {name}: {gpu}"
    return "generic", f"preset generic: no preset of its own for {gpu}"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PresetError(f"cannot read preset {path}: {error.strerror or error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PresetError(f"preset {path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise PresetError(f"preset {path} must be a mapping of sections, got {type(data).__name__}.")
    return data


def _validate(data: Mapping[str, Any], origin: str) -> Preset:
    try:
        return Preset.model_validate({key: value for key, value in data.items() if value is not None})
    except ValidationError as error:
        raise PresetError("\n".join(_explain(item, origin) for item in error.errors())) from None


def _explain(item: Any, origin: str) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        allowed = _allowed_at(item["loc"][:-1])
        close = nearest(str(item["loc"][-1]), allowed)
        return f"unknown key '{key}' in {origin}{close} Allowed: {', '.join(allowed)}."
    return f"wrong value for '{key}' in {origin}: got {item['input']!r}. {item['msg']}."


def _allowed_at(location: tuple[Any, ...]) -> list[str]:
    """Return the keys allowed at a location inside a preset."""
    model: type[BaseModel] = Preset
    for part in location:
        if part == "env":
            model = Variable
        elif part in model.model_fields:
            annotation = model.model_fields[part].annotation
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                model = annotation
    return list(model.model_fields)


def _check_consistent(preset: Preset, origins: Mapping[str, str]) -> None:
    if preset.conv.engine == "vendor" and preset.conv.vendor == "off":
        raise PresetError(
            f"conv.engine 'vendor' (from {origins.get('conv.engine', 'default')}) asks for the vendor library, "
            f"conv.vendor 'off' (from {origins.get('conv.vendor', 'default')}) switches it off. "
            "Set conv.vendor to 'on', or take engine 'aten' or 'gemm'."
        )


def _keys(section: BaseModel) -> list[str]:
    return list(type(section).model_fields)
