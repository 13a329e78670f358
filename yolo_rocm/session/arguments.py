"""The preset's Ultralytics arguments, under those that a user has given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..hardware import Machine
from ..hardware.catalogue import WITHOUT_BF16
from ..preset.cfg_file import with_file
from ..preset.schema import Settings
from ..preset.step import AUTO, CHANNELS_LAST, NCHW, layout_of
from ..ultralytics_hooks import ranks, resuming, trainers
from ..ultralytics_hooks.arguments import default_argument, knows_argument
from ..ultralytics_hooks.log import say


def train_section(settings: Settings, device: Any) -> dict[str, Any]:
    """Return the preset's Ultralytics arguments, and the layout of `step` as one of them.

    The batch of a preset is for one GPU, Ultralytics' is for all together.

    Args:
        settings: The preset.
        device: Ultralytics' `device` argument of the run.
    """
    section = dict(settings.preset.train)
    batch = section.get("batch")
    if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:  # -1 and a fraction are searched for
        section["batch"] = batch * ranks.ranks_asked(device)
    layout = layout_of(settings.preset)
    # On one GPU the two layouts are measured where this argument is not given; on several nobody measures.
    if layout == AUTO and ranks.ranks_asked(device) > 1:
        layout = NCHW
    if layout in (NCHW, CHANNELS_LAST) and knows_argument("channels_last"):
        section.setdefault("channels_last", layout == CHANNELS_LAST)
    return section


def given_by_user(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call over those of its `cfg=` file.

    Raises:
        ConfigError: The file is not there, or cannot be read.
    """
    return {**with_file(arguments), **arguments}


def train_arguments(settings: Settings, arguments: Mapping[str, Any], yolo: Any = None) -> dict[str, Any]:
    """Add the preset's Ultralytics arguments to those of a call. A resumed run keeps the ones it began with.

    Args:
        settings: Those of the run.
        arguments: Those of the call.
        yolo: The YOLO object, where it is known: one that holds no unfinished training begins one, whatever `resume`
            says.

    Raises:
        ConfigError: `resume="auto"` of a YOLO object's own `train`, which would resume the newest run of all.
    """
    given = given_by_user(arguments)
    resume = given.get("resume")
    if resume == "auto":
        raise ConfigError(
            'resume="auto" is for yolo_rocm.train and `yolo-rocm train`. Give a last.pt, or use one of them.'
        )
    if resume and not (resume is True and yolo is not None and resuming.epochs_in(yolo) is None):
        return dict(arguments)
    section = train_section(settings, given.get("device"))
    added = {name: value for name, value in section.items() if not _is_given(name, given)}
    if "batch" in added and added["batch"] != settings.preset.train["batch"]:
        say("arguments.batch", f"batch={added['batch']}: {settings.preset.train['batch']} of the preset for each GPU")
    unknown = [name for name in added if not knows_argument(name)]
    if unknown:
        say("arguments.left_out", f"this Ultralytics has no argument {', '.join(unknown)}: left out")
    return {**arguments, **{name: value for name, value in added.items() if name not in unknown}}


def _is_given(name: str, given: Mapping[str, Any]) -> bool:
    """Return whether the user has said what an argument is; None is a value where it is Ultralytics' own default."""
    if given.get(name) is not None or name not in given:
        return name in given
    return knows_argument(name) and default_argument(name) is None


def size_of_images(settings: Settings, given: Mapping[str, Any], yolo: Any = None) -> Any:
    """Return the `imgsz` that a training is going to have; None where nobody has said any.

    Args:
        settings: The preset, whose arguments go over those of a checkpoint.
        given: What the user has given.
        yolo: The YOLO object; one that was loaded from a checkpoint goes on with its size.
    """
    of_preset = settings.preset.train.get("imgsz")
    of_model = None if "cfg" in given else (getattr(yolo, "overrides", None) or {}).get("imgsz")
    return next((size for size in (given.get("imgsz"), of_preset, of_model) if size is not None), None)


def check_amp(machine: Machine, trainer: Any) -> None:
    """Refuse bf16 where the GPU has none: torch says of every AMD GPU that it has.

    Args:
        machine: The machine.
        trainer: A trainer with its final arguments.

    Raises:
        ConfigError: The training asks for bf16, and the GPU has no instructions for it.
    """
    gpu = machine.gpu
    asked = getattr(trainer.args, "amp", None) == "bf16" and str(getattr(trainer, "device", "")) != "cpu"
    if not asked or gpu is None or gpu.family not in WITHOUT_BF16:
        return
    raise ConfigError(
        f"amp='bf16': {gpu} has no bf16 arithmetic ({gpu.family}), although torch.cuda.is_bf16_supported() is True for "
        "every AMD GPU; kernels that use it end the process or are emulated. Allowed here: amp=True (fp16) and "
        "amp=False (fp32)."
    )


def size_given_to(trainer: Any) -> Any:
    """Return a trainer's `imgsz`; None for Ultralytics' default, which counts as not given."""
    size = trainer.args.imgsz
    return None if size == default_argument("imgsz") else size


def add_to_trainer(settings: Settings, trainer: Any) -> None:
    """Add the preset's arguments to those of a trainer.

    Only callbacks on their own get here. Which values the user gave is no longer known, so a value that equals
    Ultralytics' default counts as not given.
    """
    if trainer.args.resume:
        return
    for name, value in train_section(settings, trainer.args.device).items():
        known = knows_argument(name)
        if known and getattr(trainer.args, name, None) == default_argument(name) != value:
            trainers.set_trainer_argument(trainer, name, value)
            say("arguments.added", f"{name}={value} from preset {settings.preset.name}")
