"""The module that knows Ultralytics' engine from inside: named probes and named, undoable interventions.

Its data sets and transforms are the matter of `ultralytics_data`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from .data.loader import PolicyLoaderMixin, close_all
from .data.policy import LoaderPolicy
from .errors import ConfigError, StackError, nearest

OLDEST: Final = Version("8.3.0")
MODES: Final = ("train", "val", "predict", "track", "embed", "tune", "export", "benchmark")
PREFIX: Final = "ROCm: "
_CLI_MODULE: Final = "ultralytics.cfg.__init__"

Around = Callable[[Any, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def require() -> None:
    """Check that a usable Ultralytics is installed.

    Raises:
        StackError: It is missing or too old; the message has the command to run.
    """
    if importlib.util.find_spec("ultralytics") is None:
        raise StackError(
            "Ultralytics is not installed. Install torch and torchvision for your GPU first, "
            "then run: pip install ultralytics"
        )
    import ultralytics

    if Version(ultralytics.__version__) < OLDEST:
        raise StackError(
            f"Ultralytics {ultralytics.__version__} is too old, {OLDEST} or newer is needed: pip install -U ultralytics"
        )


def say(message: str, warning: bool = False) -> None:
    """Log one line where the user of a run looks: Ultralytics' own logger."""
    from ultralytics.utils import LOGGER, colorstr

    (LOGGER.warning if warning else LOGGER.info)(f"{colorstr(PREFIX)}{message}")


def say_diagnosis(error: BaseException) -> None:
    """Name a failure that is known, with its cause and remedy. The error itself is the caller's to raise again."""
    with suppress(Exception):  # whatever goes wrong here must not take the place of the error
        from .diagnosis.knowledge import explain

        match = explain(error)
        if match is None:
            return
        known = match.signature
        say(f"this failure is known as {known.id}. {known.cause}", warning=True)
        say(f"what to do: {match.remedy()} (known from {' '.join(known.sources)})", warning=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show Ultralytics' own progress bar; it appears with the first call of (done, all)."""
    from ultralytics.utils import TQDM

    bars: list[Any] = []

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(TQDM(total=total, desc=f"{PREFIX}{title}"))
        bars[0].update(1)

    try:
        yield show
    finally:
        for bar in bars:
            bar.close()


def knows_argument(name: str) -> bool:
    """Probe: does the installed version take this training argument? They come and go between releases."""
    from ultralytics.utils import DEFAULT_CFG_DICT

    return name in DEFAULT_CFG_DICT


def default_argument(name: str) -> Any:
    """Return Ultralytics' own default of an argument."""
    from ultralytics.utils import DEFAULT_CFG_DICT

    return DEFAULT_CFG_DICT[name]


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments Ultralytics would refuse, before it has created a run folder.

    Raises:
        ConfigError: An argument is unknown; the nearest known ones are offered.
    """
    from ultralytics.cfg import _handle_deprecation
    from ultralytics.utils import DEFAULT_CFG_DICT

    known = {*DEFAULT_CFG_DICT, "augmentations", "save_dir", "trainer", "cfg"}
    if set(arguments) <= known:
        return
    for name in _handle_deprecation(dict(arguments)):
        if name not in known:
            raise ConfigError(
                f"unknown argument '{name}'{nearest(name, [*known, 'preset', 'rocm'])} "
                "`yolo cfg` lists the training arguments of the installed Ultralytics."
            )


def check_data(data: Any) -> None:
    """Refuse a data set that is neither there nor known to Ultralytics, before it has created a run folder.

    Raises:
        ConfigError: There is no such file or folder.
    """
    from ultralytics.utils import DATASETS_DIR, ROOT

    if not isinstance(data, str | Path) or "://" in str(data):
        return
    name = str(data)
    places = (Path(name), DATASETS_DIR / name, ROOT / "cfg" / "datasets" / name)
    downloads = {"mnist", "fashion-mnist", "cifar10", "cifar100", "caltech101", "caltech256"}
    if name.startswith("imagen") or name in downloads or any(place.exists() for place in places):
        return
    raise ConfigError(
        f"data {name!r} does not exist: no file or folder of that name here or in {DATASETS_DIR}. "
        "Give the path of a data set YAML, or of a folder for classification."
    )


def check_model(yolo: Any) -> None:
    """Refuse anything but an Ultralytics model object.

    Raises:
        ConfigError: It is something else; a file name, or the torch module inside.
    """
    if not isinstance(yolo, model_class()):
        raise ConfigError(
            f"register() takes a YOLO object, got {type(yolo).__name__}. Pass what `YOLO(...)` returned, not its "
            "file name and not `yolo.model`."
        )


def load_model(model: Any) -> Any:
    """Return a YOLO object for weights or a model YAML; one that exists is taken as it is."""
    if isinstance(model, model_class()):
        return model
    from ultralytics import RTDETR, YOLO

    # A YAML of RT-DETR does not tell YOLO() its task.
    return RTDETR(model) if Path(str(model)).stem.lower().startswith("rtdetr") else YOLO(model)


def torch_module(model: str) -> Any:
    """Return the torch module of a model YAML or weights."""
    return load_model(model).model.float()


def loads_data_already(trainer: Any) -> bool:
    """Probe: does `on_pretrain_routine_start` fire inside `train()` (<= 8.3.183) or before it, in `__init__`?"""
    return hasattr(trainer, "data")


def plain_model(model: Any) -> Any:
    """Return the model inside DistributedDataParallel and torch.compile wrappers."""
    while True:
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        if inner is None or not hasattr(inner, "named_modules"):
            return model
        model = inner


def set_trainer_argument(trainer: Any, name: str, value: Any) -> None:
    """Change an argument of a trainer that has been constructed but has loaded nothing yet."""
    setattr(trainer.args, name, value)
    if name == "batch":
        trainer.batch_size = value


def asked_workers(trainer: Any, insist: bool, wanted: int | None) -> int:
    """Return how many workers the training loader of a trainer is going to ask for; on a CPU it asks for none."""
    if insist:
        return wanted or 0
    if trainer.device.type in ("cpu", "mps"):
        return 0
    return int(trainer.args.workers) if wanted is None else wanted


def asked_batch(trainer: Any) -> int:
    """Return the batch size of a trainer; 16 where it is still to be found (`batch=-1`)."""
    return max(1, int(trainer.batch_size)) if trainer.batch_size and trainer.batch_size >= 1 else 16


def worker_count(loader: Any) -> int:
    """Return how many workers a loader of a trainer has; none where there is no loader."""
    return int(getattr(loader, "num_workers", 0))


def mosaic_closes_after(trainer: Any) -> bool:
    """Tell whether the epoch that begins is the last one with mosaics, after which workers start again."""
    closing = int(getattr(trainer.args, "close_mosaic", 0) or 0)
    return bool(closing) and trainer.epoch + 1 == trainer.epochs - closing


def loading_facts(trainer: Any) -> tuple[str, str]:
    """Return what a trainer computes on, and what it could try where data is the bottleneck."""
    cached = bool(getattr(trainer.args, "cache", False))
    more = max(4, 2 * int(getattr(trainer.args, "workers", 0) or 0))
    tips = [f"workers={more}", *([] if cached else ["cache=disk"]), "rocm.loader.device_augment=true"]
    return ("CPU" if trainer.device.type == "cpu" else "GPU"), ", ".join(tips)


def wrap_modes(target: Any, around: Around) -> Callable[[], None]:
    """Run the modes of a YOLO object, or of Ultralytics' `Model` class, through `around`.

    Args:
        target: A YOLO object, whose class stays untouched, or the class of all of them.
        around: Called with the object, the mode, the original method and its arguments.

    Returns:
        A function that puts everything back.
    """
    is_class = isinstance(target, type)
    before = {mode: vars(target)[mode] for mode in MODES if mode in vars(target)}
    wrapped = [mode for mode in MODES if hasattr(target, mode)]

    def wrapper(mode: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if is_class:

            @functools.wraps(original)
            def run(self: Any, *args: Any, **kwargs: Any) -> Any:
                return around(self, mode, types.MethodType(original, self), args, kwargs)
        else:

            @functools.wraps(original)
            def run(*args: Any, **kwargs: Any) -> Any:
                return around(target, mode, original, args, kwargs)

        return run

    def undo() -> None:
        for mode in wrapped:
            if mode in before:
                setattr(target, mode, before[mode])
            elif mode in vars(target):
                delattr(target, mode)

    for mode in wrapped:
        setattr(target, mode, wrapper(mode, getattr(target, mode)))
    return undo


def model_class() -> type:
    """Return the class whose methods are the modes of every YOLO object."""
    from ultralytics.engine.model import Model

    result: type = Model
    return result


class _Policies:
    """Loader policies in force; the newest one decides. Counted, so that nested runs do not undo each other."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stack: list[LoaderPolicy] = []
        self.original: Any = None


_policies = _Policies()


@contextmanager
def loaders_follow(policy: LoaderPolicy) -> Iterator[None]:
    """Let every loader that Ultralytics builds follow `policy`; their workers end with it.

    All paths (start, out-of-memory retry, final evaluation, standalone validation) construct the class that
    `ultralytics.data.build` holds by name, so that name is what is replaced. Reassigning `trainer.train_loader` would
    miss the retry, and a plain DataLoader lacks the `reset()` that close_mosaic calls.
    """
    from ultralytics.data import build

    with _policies.lock:
        if not _policies.stack:
            _policies.original = build.InfiniteDataLoader
            build.InfiniteDataLoader = _policy_loader(_policies.original)
        _policies.stack.append(policy)
    try:
        yield
    finally:
        with _policies.lock:
            _policies.stack.remove(policy)
            if not _policies.stack:
                build.InfiniteDataLoader = _policies.original
                close_all()


def _policy_loader(stock: type, policy: LoaderPolicy | None = None) -> type:
    class PolicyDataLoader(PolicyLoaderMixin, stock):  # type: ignore[misc]
        """Ultralytics' loader with the arguments and the workers a preset asks for."""

        endless = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, policy=policy or _policies.stack[-1], **kwargs)

    return PolicyDataLoader


@contextmanager
def loaders_built_by(policy: LoaderPolicy | None) -> Iterator[None]:
    """Let loaders that are built in this context follow a policy and outlive it; None leaves Ultralytics' own."""
    from ultralytics.data import build

    original = build.InfiniteDataLoader
    if policy is not None:
        build.InfiniteDataLoader = _policy_loader(original, policy)
    try:
        yield
    finally:
        build.InfiniteDataLoader = original


def augment_on_device(trainer: Any, key: str) -> None:
    """Let a trainer apply what a batch carries under `key` to its images, once they are on the device."""
    original = trainer.preprocess_batch

    def preprocess(batch: Any) -> Any:
        recorded = batch.pop(key, None)
        if recorded is not None:
            images = batch["img"].to(trainer.device, non_blocking=trainer.device.type == "cuda")
            batch["img"] = recorded.apply(images)
        return original(batch)

    trainer.preprocess_batch = preprocess


class _Children:
    """Environments for child processes; the newest one decides. Counted like the loader policies."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stack: list[Mapping[str, str]] = []
        self.replaced: list[Any] = []


_children = _Children()


@contextmanager
def children_follow(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the `yolo` processes that tune and multi-data-set training start run under the same preset.

    Ultralytics starts `python -m ultralytics.cfg.__init__ ...`; here it becomes `python -m yolo_rocm.child ...`.
    """
    from ultralytics.engine import trainer, tuner

    with _children.lock:
        if not _children.stack:
            _children.replaced = [module for module in (trainer, tuner) if hasattr(module, "subprocess")]
            shim = types.SimpleNamespace(**{**vars(subprocess), "run": _run_child})
            for module in _children.replaced:
                module.subprocess = shim
        _children.stack.append(environment)
    try:
        yield
    finally:
        with _children.lock:
            _children.stack.remove(environment)
            if not _children.stack:
                for module in _children.replaced:
                    module.subprocess = subprocess


def _run_child(command: Any, *args: Any, **kwargs: Any) -> Any:
    environments = list(_children.stack)
    if environments and isinstance(command, list | tuple) and _CLI_MODULE in command:
        command = ["yolo_rocm.child" if part == _CLI_MODULE else part for part in command]
        kwargs["env"] = {**(kwargs.get("env") or os.environ), **environments[-1]}
    return subprocess.run(command, *args, **kwargs)


def run_command_line(arguments: list[str]) -> None:
    """Run Ultralytics' own command line in this process."""
    from ultralytics.cfg import entrypoint

    sys.argv = ["yolo", *arguments]
    entrypoint()
