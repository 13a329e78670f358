"""What a preset may say: its sections, keys and values, and a message for each mistake in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from ..engines.names import ENGINES, SINGLE, single_engines
from ..errors import PresetError, nearest
from ..utils.process_group import PATIENCE_S
from ..utils.switch import Switch
from . import allowed_variables

# Arguments that say what is run, not how: a model is code, and so is the `download:` of a data set.
_OF_THE_RUN: Final = ("cfg", "data", "model", "pretrained", "resume", "source", "trainer")
SECTIONS: Final = ("match", "env", "conv", "step", "predict", "loader", "ranks", "report", "train")


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


def _known_engine(value: str) -> str:
    single_engines(value)  # the planner's own check
    return value


def _switch(value: Any) -> Any:
    """Return a switch as YAML has it written: there `on` and `off` are truth values."""
    return (Switch.ON if value else Switch.OFF) if isinstance(value, bool) else value


def _not_auto(value: Switch) -> Switch:
    if value == Switch.AUTO:
        raise PydanticCustomError("literal_error", "Input should be 'on' or 'off'")
    return value


def _names(value: Any) -> Any:
    """Return the names in a text that has some, with commas between."""
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


_AnySwitch = Annotated[Switch, BeforeValidator(_switch)]
_OnOff = Annotated[_AnySwitch, AfterValidator(_not_auto)]
_Names: Final = BeforeValidator(_names)


class Conv(_Section):
    """How convolutions are computed."""

    engine: Annotated[str, AfterValidator(_known_engine)] = Field(
        default="auto", description=f"one of {', '.join(ENGINES)}, or several of the last {len(SINGLE)} joined by +"
    )
    devices: Annotated[list[Literal["cuda", "cpu"]], _Names] = Field(default=["cuda"], min_length=1)
    vendor: _OnOff = Field(default=Switch.OFF, description="MIOpen/cuDNN for the whole run, BatchNorm too")
    memory_mb: int | None = Field(default=None, ge=1, description="workspace of one convolution, MiB")
    tune: _AnySwitch = Field(default=Switch.AUTO, description="measure algorithms; auto: on a GPU")


class Step(_Section):
    """How a training step is computed."""

    memory: Literal["auto", "full", "lean"] = Field(
        default="auto",
        description="lean: activations are computed again in backward, not kept; auto: lean on cards under 12 GB",
    )
    layout: Literal["auto", "nchw", "channels_last"] = Field(
        default="auto",
        description="auto: the faster of both, measured once on a GPU; with engine `vendor` what Ultralytics does. Its "
        "own argument `channels_last` wins",
    )
    graph: _AnySwitch = Field(
        default=Switch.OFF,
        description="record the network's passes as device graphs and replay them; auto: where the GPU waits for the "
        "host, a step gets faster and there is enough memory, measured once. One GPU, torch 2.4 or newer",
    )


class Predict(_Section):
    """What predicts, and how networks are computed in prediction and validation."""

    engines: Annotated[list[Literal["torchscript", "ncnn", "onnx", "openvino"]], _Names] = Field(
        default=["ncnn", "onnx", "openvino"],
        description="what `predict engine=auto` measures next to torch, where it is installed",
    )
    fuse: _OnOff = Field(
        default=Switch.ON, description="convolution, BatchNorm and activation in one kernel, chosen by measurement"
    )
    layout: Literal["auto", "nchw", "channels_last"] = Field(
        default="auto", description="of activations; auto: the faster of both, measured once a shape on a GPU"
    )
    graph: _AnySwitch = Field(
        default=Switch.OFF,
        description="record the network as a device graph and replay it; auto: where it is faster, measured after "
        "the first calls of a shape. At most 4 shapes, torch 2.4 or newer, not for models in training",
    )


class Loader(_Section):
    """How batches are loaded."""

    context: Literal["spawn", "forkserver", "fork"] = Field(
        default="spawn", description="start method of workers; configs/os/linux.yaml sets forkserver"
    )
    workers: int | None = Field(default=None, ge=0, description="at most; fewer where cores or memory are short")
    persistent: bool = Field(default=True, description="keep workers across epochs")
    pin_memory: bool | Literal["auto"] = Field(default="auto", description="auto: where it works and fits")
    prefetch: int | None = Field(default=None, ge=1, description="batches each worker holds ready")
    timeout: float = Field(default=120, ge=0, description="seconds to wait for a batch; 0 waits without limit")
    reproducible: Literal["worker", "strict"] = Field(
        default="worker", description="strict: the same batches for any number of workers"
    )
    skip_broken: bool = Field(
        default=True, description="replace samples whose file cannot be read, but in a validation alone"
    )
    mosaic_mb: int | None = Field(default=512, ge=1, description="memory of a worker for the images of mosaics, MiB")
    device_prefetch: bool | Literal["auto"] = Field(
        default=False, description="copy the next batch ahead of time; auto: on cards above 8 GB"
    )


class Ranks(_Section):
    """The processes of a training on several GPUs or machines."""

    timeout_s: int = Field(
        default=PATIENCE_S,
        ge=10,
        description="seconds a process waits for the others; after a power failure it ends no sooner. The default is "
        "Ultralytics' own: while one reads a large data set for the first time, the others wait",
    )


class Report(_Section):
    """What is written about a run, next to its results."""

    html: bool = Field(default=True, description="a page that shows the run, at its end")
    telemetry: bool = Field(default=True, description="look at card and host while training, and time some steps")
    interval_s: float = Field(
        default=1.0, ge=0.1, le=3600, description="seconds between two looks, at least; more where looking costs"
    )


class Preset(_Section):
    """A validated preset. `evidence` says when it was certified on the card, with which result, or `none`."""

    name: str = "custom"
    title: str = ""
    base: str | None = None
    match: Match = Match()
    env: dict[Annotated[str, AfterValidator(allowed_variables.check)], Variable] = Field(default_factory=dict)
    conv: Conv = Conv()
    step: Step = Step()
    predict: Predict = Predict()
    loader: Loader = Loader()
    ranks: Ranks = Ranks()
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


_MODELS: Final[dict[Any, type[BaseModel]]] = {
    "match": Match, "env": Variable, "when": When, "conv": Conv, "step": Step, "predict": Predict, "loader": Loader,
    "ranks": Ranks, "report": Report,
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """A preset with all that overrides it: final values, the origin of each, and what is worth saying.

    `batch_of` says the batch for a size of images, and why; None where it is not left to the card.
    """

    preset: Preset
    origins: dict[str, str]
    why: str
    notes: tuple[str, ...] = ()
    batch_of: Callable[[Any], tuple[int | None, str]] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Settings: {self.why}; every value: as_dict()>"

    def for_images(self, imgsz: Any) -> Settings:
        """Return these settings for images of a size: where the preset leaves the batch to the card, it is another.

        Args:
            imgsz: As Ultralytics takes it; None is what the preset says.
        """
        train = self.preset.train
        if self.batch_of is None:
            return self
        batch, _ = self.batch_of(train.get("imgsz") if imgsz is None else imgsz)
        if batch == train["batch"]:
            return self
        return replace(self, preset=self.preset.model_copy(update={"train": {**train, "batch": batch}}))

    def is_explicit(self, key: str) -> bool:
        """Return whether the user has set a value, such as `loader.workers`, in a file of their own or an argument."""
        return not self.origins.get(key, "default").startswith(("default", "configs/"))

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield (key, value, origin) for every final value, defaults included."""
        for section in SECTIONS:
            value = getattr(self.preset, section)
            for key, item in (value if isinstance(value, dict) else dict(value)).items():
                shown = item.value if isinstance(item, Variable) else item
                name = f"{section}.{key}"
                yield name, shown, self.origins.get(name, "default")
        yield "evidence", self.preset.evidence, self.origins.get("evidence", "default")

    def as_dict(self) -> dict[str, Any]:
        """Return preset name, reason, and every value with its origin as plain data for JSON."""
        values = {key: {"value": value, "origin": origin} for key, value, origin in self.rows()}
        return {"preset": self.preset.name, "why": self.why, "values": values, "notes": list(self.notes)}


def validate(data: Mapping[str, Any], origin: str) -> Preset:
    """Return data as a preset.

    Args:
        data: A whole preset, or a part of one.
        origin: The file or argument it comes from, for messages.

    Raises:
        PresetError: A key or value is wrong; the message says which, and what is allowed.
    """
    try:
        return Preset.model_validate({key: value for key, value in data.items() if value is not None})
    except ValidationError as error:
        raise PresetError("\n".join(_explain(item, origin) for item in error.errors())) from None


def _explain(item: Any, origin: str) -> str:
    key = ".".join(str(part) for part in item["loc"] if part != "[key]")
    if item["type"] == "extra_forbidden":
        *_, section = (Preset, *(_MODELS[part] for part in item["loc"][:-1] if part in _MODELS))
        allowed = list(section.model_fields)
        close = nearest(str(item["loc"][-1]), allowed)
        return f"unknown key '{key}' in {origin}{close} Allowed: {', '.join(allowed)}."
    if item["type"] == "value_error":
        return f"wrong '{key}' in {origin}: {str(item['ctx']['error']).rstrip('.')}."
    return f"wrong value for '{key}' in {origin}: got {item['input']!r}. {item['msg']}."
