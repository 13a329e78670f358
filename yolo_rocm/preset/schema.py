"""Presets: what is known to be right for a card, as validated data with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..errors import PresetError, nearest
from ..hardware import Machine, detect
from . import allowed_variables
from .files import config_root, find, presets, read, user_presets
from .select import PRESET_VARIABLE, Choice, batch_of, choose, wanted_by_user

__all__ = [
    "SECTIONS",
    "Checkpoint",
    "Conv",
    "Loader",
    "Match",
    "Preset",
    "Report",
    "Settings",
    "Variable",
    "When",
    "config_root",
    "load_preset",
    "presets",
    "resolve",
]

# Arguments that say what is run, not how: a model is code, and so is the `download:` of a data set.
_OF_THE_RUN: Final = ("cfg", "data", "model", "pretrained", "resume", "source", "trainer")
SECTIONS: Final = ("match", "env", "conv", "loader", "checkpoint", "report", "train")


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
    own_kernels: bool | None = Field(default=None, description="whether torch has kernels for the card's true target")
    kernels_for: str | None = Field(default=None, description="a target torch must have kernels for, e.g. gfx1030")


class Variable(_Section):
    """An environment variable, when it is sound to set it, and why."""

    value: str
    when: When = When()
    why: str = ""
    required: bool = Field(default=False, description="no training on the card without it, where `when` holds")

    @field_validator("value", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("value")
    @classmethod
    def _settable(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("an environment variable cannot hold a NUL character")
        return value


class Conv(_Section):
    """How convolutions are computed."""

    engine: Literal["auto", "vendor", "aten", "gemm", "triton", "gemm+triton"] = "auto"
    devices: list[Literal["cuda", "cpu"]] = Field(default=["cuda"], min_length=1)
    vendor: Literal["on", "off"] = Field(default="off", description="MIOpen/cuDNN for the whole run, BatchNorm too")
    memory_mb: int | None = Field(default=None, ge=1, description="workspace of one convolution, MiB")
    tune: Literal["auto", "on", "off"] = Field(default="auto", description="measure algorithms; auto: on a GPU")

    @field_validator("devices", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, value: Any) -> Any:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

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


class Checkpoint(_Section):
    """What is kept next to the checkpoints."""

    exact_resume: bool = Field(default=False, description="keep all that resuming needs to go on as if never stopped")


class Report(_Section):
    """What is written about a run, beside its results."""

    html: bool = Field(default=True, description="a page that shows the run, at its end")
    telemetry: bool = Field(default=True, description="look at card and host while training, and time some steps")
    interval_s: float = Field(
        default=1.0, ge=0.1, le=3600, description="seconds between two looks, at least; more where looking costs"
    )


class Preset(_Section):
    """A validated preset. `evidence` says who ran it on the card, or `none`."""

    name: str = "custom"
    title: str = ""
    base: str | None = None
    match: Match = Match()
    env: dict[Annotated[str, AfterValidator(allowed_variables.check)], Variable] = Field(default_factory=dict)
    conv: Conv = Conv()
    loader: Loader = Loader()
    checkpoint: Checkpoint = Checkpoint()
    report: Report = Report()
    train: dict[str, Any] = Field(default_factory=dict, description="Ultralytics arguments")
    evidence: str = "none"

    @field_validator("train")
    @classmethod
    def _how_not_what(cls, train: dict[str, Any]) -> dict[str, Any]:
        for name in _OF_THE_RUN:
            if not isinstance(train.get(name), bool | None):  # pretrained: false is how
                raise ValueError(f"{name} belongs to the run, not to a preset. Give it as an argument: {name}=")
        return train


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
    """Lay preset, operating-system overlay, the user's file, the `rocm` section and arguments over each other.

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
        layers.add(data, origin, explicit=True)
    if rocm:
        if not isinstance(rocm, Mapping):
            raise PresetError(f"rocm must be a mapping of sections, got {type(rocm).__name__}.")
        layers.add(rocm, "rocm", explicit=True)
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    if "workers" in given:
        layers.add({"loader": {"workers": given["workers"]}}, "argument", explicit=True)
    _settle_batch(layers, machine, given.get("imgsz"))
    preset = _validate(layers.merged, "the merged preset")
    _check_consistent(preset, layers.origins)
    notes = (*choice.notes, *machine.warnings)
    return Settings(preset, layers.origins, choice.why, frozenset(layers.explicit), notes)


def _settle_batch(layers: _Layers, machine: Machine, imgsz: Any) -> None:
    """Put a number in the place of `train.batch: auto`; where memory is not known, Ultralytics' own default stays."""
    train = layers.merged.get("train") or {}
    if train.get("batch") != "auto":
        return
    batch, memory = batch_of(layers.merged.get("match") or {}, machine, imgsz)
    if batch is None:
        del train["batch"]
        del layers.origins["train.batch"]
    else:
        train["batch"] = batch
        layers.origins["train.batch"] += f" (auto: {memory})"


def _chain(
    source: str | Path | Mapping[str, Any], machine: Machine, above: tuple[Path, ...] = (), ask_user: bool = True
) -> tuple[Choice, list[tuple[dict[str, Any], str]]]:
    """Return what was chosen and why, and its layers from the deepest base up.

    Args:
        source: As for `load_preset`.
        machine: Facts to resolve against.
        above: Files that stand on this one.
        ask_user: Let `YOLO_ROCM_PRESET` say what `auto` is; not below the preset it names.
    """
    wanted = wanted_by_user() if ask_user and source == "auto" else None
    if wanted:
        choice, layers = _chain(wanted, machine, above, ask_user=False)
        return Choice(choice.name, f"{choice.why} ({PRESET_VARIABLE})", choice.notes), layers
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
        data, origin, why = read(path), str(source), f"preset file {source}"
    else:
        # Below a preset of the user's own, a name means the shipped preset: his `rx5600xt` may stand on ours.
        own = not any(each in user_presets().values() for each in above)
        chosen = choose(machine, own=own) if source == "auto" else Choice(source, f"preset {source}, as asked")
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
    return Choice(str(data.get("name", source)), why, notes), [*below, (data, origin)]


def _validate(data: Mapping[str, Any], origin: str) -> Preset:
    try:
        return Preset.model_validate({key: value for key, value in data.items() if value is not None})
    except ValidationError as error:
        raise PresetError("\n".join(_explain(item, origin) for item in error.errors())) from None


def _explain(item: Any, origin: str) -> str:
    key = ".".join(str(part) for part in item["loc"] if part != "[key]")
    if item["type"] == "extra_forbidden":
        allowed = _allowed_at(item["loc"][:-1])
        close = nearest(str(item["loc"][-1]), allowed)
        return f"unknown key '{key}' in {origin}{close} Allowed: {', '.join(allowed)}."
    if item["type"] == "value_error":
        return f"wrong '{key}' in {origin}: {item['ctx']['error']}."
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
