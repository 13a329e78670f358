"""What this package relies on in Ultralytics, as data: each thing by its place, and what is lost without it.

A new release is judged by these, not by its number. Whatever the package imports from Ultralytics is in `PROBES`: a
test compares the two.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..utils.child_process import answer_parent
from .sources import LOSSES, words_of

TRAINING: Final = "training"
DAMAGED_IMAGES: Final = "replacing damaged images"
IN_PLACE: Final = "writing images straight into the batch"
CHILDREN: Final = "tune under the preset"
ARGUMENT_CHECK: Final = "checking arguments before a run"
EARLY_CALLBACKS: Final = "callbacks before the model is built"
PREDICT_CALLBACKS: Final = "prediction through callbacks alone"
BENCH_LOADER: Final = "bench loader"
BENCH_TRAIN: Final = "bench train"
COMPILE_MODE: Final = "bench train with compile"
WHOLE_CHECKPOINTS: Final = "whole checkpoints"
SEVERAL_GPUS: Final = "several GPUs under the preset"
WITHOUT_MODELS: Final = "trainers, validators and predictors without a YOLO object"
MEMORY_ERRORS: Final = "halving the batch on AMD's memory errors"
LAYOUT: Final = "step.layout by measurement"
FUSED_BLOCKS: Final = "BatchNorm and activation as one"
INFERENCE_BLOCKS: Final = "predict.fuse"
GRAPHED_INFERENCE: Final = "predict.graph"
LEAN_NETWORKS: Final = "step.memory: lean"
GRAPHED_NETWORKS: Final = "step.graph"
ANCHORS: Final = "anchor points made once for a size"
FUSED_LOSSES: Final = "losses in few kernels"
FUSED_OPTIMIZERS: Final = "SGD in one kernel"
STEP_PLACES: Final = "the step by class of operator in the report"
VULKAN: Final = "predict engine=ncnn on a GPU"
CHOSEN_ENGINE: Final = "predict engine=auto"


@dataclass(frozen=True)
class Need:
    """One thing relied on. It holds if at least one of its places does.

    Attributes:
        places: Where it is: a module, then attributes; a later one is where other releases have it.
        feature: What cannot be done without it: `TRAINING`, or something that is then left off.
        use: What it is used for.
        takes: Arguments of the function there.
        names: Attributes and variables that its code must name; how one sees what an object will carry.
        says: Text constants of its code, such as events.
        keys: Keys of the mapping there.
        extends: A class it must be derived from, by name.
        computes: A function whose code its own must be.
        words: What `words_of` must return for it.
    """

    places: tuple[str, ...]
    feature: str
    use: str
    takes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    extends: str = ""
    computes: Callable[..., Any] | None = None
    words: str = ""

    def problem(self) -> str:
        """Return a sentence on what does not hold, or nothing."""
        problems = [self._problem_at(place) for place in self.places]
        return "" if "" in problems else f"{' and '.join(problems)}; it is used for {self.use}"

    def _problem_at(self, place: str) -> str:
        try:
            found = found_at(place)
        except (ImportError, AttributeError) as error:
            return f"{place} is not there ({error})"
        lacks = ", ".join(self._lacks(found))
        return f"{place} has no {lacks}" if lacks else ""

    def _lacks(self, found: Any) -> Iterator[str]:
        if self.takes:
            arguments = inspect.signature(found).parameters
            yield from (f"argument {name}" for name in self.takes if name not in arguments)
        if self.names or self.says:
            code = getattr(inspect.unwrap(found), "__code__", None)
            known = (*code.co_names, *code.co_varnames) if code is not None else ()
            yield from (f"'{name}'" for name in self.names if name not in known)
            yield from (f"'{text}'" for text in self.says if code is None or text not in code.co_consts)
        yield from (f"key '{key}'" for key in self.keys if key not in found)
        if self.extends and self.extends not in [base.__name__ for base in inspect.getmro(found)]:
            yield f"base {self.extends}"
        if self.computes is not None and not same_code(inspect.unwrap(found), self.computes):
            yield "code that is known"
        if self.words and words_of(found) != self.words:
            yield "source that is known"


def same_code(function: Any, other: Callable[..., Any]) -> bool:
    """Return whether two functions compute the same, whatever their arguments are called."""
    ours, theirs = getattr(function, "__code__", None), other.__code__
    return ours is not None and (ours.co_code, ours.co_names) == (theirs.co_code, theirs.co_names)


def found_at(place: str) -> Any:
    """Return what is at a dotted place, importing modules as far as there are any."""
    head, *rest = place.split(".")
    found, path = importlib.import_module(head), head
    for name in rest:
        path = f"{path}.{name}"
        if inspect.ismodule(found) and not hasattr(found, name):
            found = importlib.import_module(path)
        else:
            found = getattr(found, name)
    return found


_MODEL, _TRAINER = "ultralytics.engine.model.Model", "ultralytics.engine.trainer.BaseTrainer"
_CONV = "ultralytics.nn.modules.conv"
_DATASET, _AUGMENT = "ultralytics.data.base.BaseDataset", "ultralytics.data.augment"
# The events a session listens to, each by a method of that name.
EVENTS: Final = (
    "on_pretrain_routine_start",
    "on_pretrain_routine_end",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_train_epoch_end",
    "on_fit_epoch_end",
    "on_train_end",
    "teardown",
    "on_predict_start",
)


# What blocks of `ultralytics.nn.modules.conv` compute that end in BatchNorm and activation.
BLOCKS: Final[dict[str, Callable[..., Any]]] = {
    "Conv": lambda self, x: self.act(self.bn(self.conv(x))),
    "ConvTranspose": lambda self, x: self.act(self.bn(self.conv_transpose(x))),
}
# What `Conv` computes after BatchNorm has been folded into its convolution.
FUSED_CODE: Final[Callable[..., Any]] = lambda self, x: self.act(self.conv(x))  # noqa: E731  (compared as code)

PROBES: Final[tuple[Need, ...]] = (
    Need(("ultralytics.YOLO",), TRAINING, "making models"),
    *(Need((f"{_MODEL}.{mode}",), TRAINING, f"{mode} under a preset") for mode in ("train", "val", "predict")),
    Need((f"{_MODEL}.add_callback",), TRAINING, "hearing of a training", takes=("event", "func")),
    Need((f"{_MODEL}.__init__",), TRAINING, "hearing of a training", names=("callbacks",)),
    Need(("ultralytics.utils.callbacks.base.default_callbacks",), TRAINING, "following a training", keys=EVENTS),
    Need((f"{_TRAINER}.train",), TRAINING, "holding a preset for the whole training"),
    Need(
        (f"{_TRAINER}.__init__",),
        TRAINING,
        "knowing what a training is going to do",
        names=("args", "device", "save_dir", "batch_size", "epochs"),
    ),
    Need((f"{_TRAINER}.get_model",), TRAINING, "building a model under a preset"),
    Need((f"{_TRAINER}.run_callbacks",), TRAINING, "hearing of a training", takes=("event",)),
    Need(
        ("ultralytics.data.build.InfiniteDataLoader",), TRAINING, "loading by the preset's policy", extends="DataLoader"
    ),
    Need(("ultralytics.data.build.InfiniteDataLoader.reset",), TRAINING, "following close_mosaic"),
    Need(("ultralytics.data.dataset",), TRAINING, "reading data sets in workers"),
    Need(("ultralytics.utils.LOGGER.info",), TRAINING, "saying what is done"),
    Need(("ultralytics.utils.colorstr",), TRAINING, "saying what is done"),
    Need(("ultralytics.utils.TQDM",), TRAINING, "showing progress"),
    Need(
        ("ultralytics.utils.DEFAULT_CFG_DICT",),
        TRAINING,
        "knowing the arguments",
        keys=("batch", "device", "epochs", "exist_ok", "resume", "workers"),
    ),
    Need(("ultralytics.utils.DATASETS_DIR",), TRAINING, "finding data sets"),
    Need(("ultralytics.utils.ROOT",), TRAINING, "finding data sets"),
    Need(("ultralytics.utils.RANK",), TRAINING, "knowing which process writes"),
    Need(("ultralytics.RTDETR",), "RT-DETR from its YAML", "making models of RT-DETR"),
    Need(("ultralytics.cfg._handle_deprecation",), ARGUMENT_CHECK, "knowing former names of arguments"),
    Need(("ultralytics.cfg.check_cfg",), ARGUMENT_CHECK, "knowing what kind of value an argument takes"),
    Need(
        ("ultralytics.utils.downloads.GITHUB_ASSETS_NAMES",), ARGUMENT_CHECK, "knowing weights that can be downloaded"
    ),
    Need(("ultralytics.utils.checks.check_yolov5u_filename",), ARGUMENT_CHECK, "knowing former names of weights"),
    Need((f"{_TRAINER}.__init__",), EARLY_CALLBACKS, "hearing of a training in time", says=(EVENTS[0],)),
    Need(("ultralytics.engine.predictor.BasePredictor.inference",), PREDICT_CALLBACKS, "predicting under a preset"),
    Need(("ultralytics.nn.autobackend.AutoBackend.warmup",), PREDICT_CALLBACKS, "warming up under a preset"),
    Need(
        ("ultralytics.engine.tuner.subprocess", "ultralytics.engine.trainer.MultiTrainer"),
        CHILDREN,
        "starting trainings in processes of their own",
    ),
    Need(("ultralytics.engine.trainer.subprocess",), CHILDREN, "starting trainings in processes of their own"),
    Need(
        ("ultralytics.utils.loss.make_anchors",),
        ANCHORS,
        "making the anchor points of a loss",
        takes=("feats", "strides", "grid_cell_offset"),
    ),
    *(Need((place,), FUSED_LOSSES, "the loss of boxes", words=words) for place, words in LOSSES.items()),
    Need((f"{_TRAINER}.build_optimizer",), FUSED_OPTIMIZERS, "making optimizers", takes=("self", "model", "name")),
    Need((f"{_TRAINER}.__init__",), WHOLE_CHECKPOINTS, "writing checkpoints", names=("wdir", "last", "best")),
    Need(("ultralytics.engine.trainer.strip_optimizer",), WHOLE_CHECKPOINTS, "finishing checkpoints", takes=("f", "s")),
    Need(
        ("ultralytics.engine.trainer.get_save_dir", "ultralytics.cfg.get_save_dir"),
        WHOLE_CHECKPOINTS,
        "checking the run folder",
    ),
    Need((f"{_TRAINER}._setup_ddp",), SEVERAL_GPUS, "joining the other processes"),
    Need((f"{_TRAINER}._do_train",), SEVERAL_GPUS, "knowing the number of processes"),
    Need(("ultralytics.engine.validator.AutoBackend",), SEVERAL_GPUS, "evaluating on the device of a rank"),
    Need(("ultralytics.engine.validator.BaseValidator.__call__",), WITHOUT_MODELS, "validating under a preset"),
    Need(("ultralytics.engine.predictor.BasePredictor.__call__",), WITHOUT_MODELS, "predicting under a preset"),
    Need(("ultralytics.utils.DEFAULT_CFG",), WITHOUT_MODELS, "telling given arguments from defaults"),
    Need(("ultralytics.utils.callbacks.get_default_callbacks",), WITHOUT_MODELS, "hearing of a training"),
    Need(("ultralytics.engine.trainer.autocast",), MEMORY_ERRORS, "hearing of errors in the forward pass"),
    Need(("ultralytics.utils.SETTINGS",), ARGUMENT_CHECK, "finding weights", keys=("weights_dir",)),
    # Released versions cannot fuse weights that were written in channels_last.
    Need((f"{_TRAINER}.save_model",), LAYOUT, "writing checkpoints in NCHW", names=("contiguous_format",)),
    Need((f"{_TRAINER}.preprocess_batch",), LAYOUT, "taking a batch to measure with", takes=("batch",)),
    Need(("ultralytics.cfg.entrypoint",), CHILDREN, "running Ultralytics' command line"),
    Need((f"{_DATASET}.load_image",), DAMAGED_IMAGES, "watching images being read"),
    Need(
        (f"{_DATASET}.__init__",),
        DAMAGED_IMAGES,
        "watching images being read",
        names=("ims", "im_files", "npy_files", "im_hw0", "im_hw", "buffer"),
    ),
    Need((f"{_AUGMENT}.Format._format_img",), IN_PLACE, "formatting images", takes=("img",)),
    Need(("ultralytics.data.build.build_yolo_dataset",), BENCH_LOADER, "building a data set"),
    Need(("ultralytics.data.build.build_dataloader",), BENCH_LOADER, "building a loader", takes=("workers", "shuffle")),
    Need(("ultralytics.data.utils.check_det_dataset",), BENCH_LOADER, "reading a data set's YAML"),
    Need(("ultralytics.cfg.get_cfg",), BENCH_LOADER, "making arguments", takes=("overrides",)),
    Need(("ultralytics.cfg.get_cfg",), BENCH_TRAIN, "giving a loss its gains"),
    Need(("ultralytics.nn.tasks.BaseModel.loss",), BENCH_TRAIN, "computing a loss", takes=("batch", "preds")),
    Need(
        ("ultralytics.utils.torch_utils.attempt_compile",),
        COMPILE_MODE,
        "compiling as the trainer does",
        takes=("model", "device", "mode"),
    ),
    *(
        Need(("ultralytics.nn.tasks.BaseModel._predict_once",), feature, "computing a network", takes=("x",))
        for feature in (LEAN_NETWORKS, GRAPHED_NETWORKS, GRAPHED_INFERENCE, STEP_PLACES)
    ),
    Need((f"{_CONV}.Conv.forward",), INFERENCE_BLOCKS, "computing blocks as one", computes=BLOCKS["Conv"]),
    Need((f"{_CONV}.Conv.forward_fuse",), INFERENCE_BLOCKS, "computing blocks as one", computes=FUSED_CODE),
    Need(("ultralytics.nn.tasks.BaseModel.forward",), INFERENCE_BLOCKS, "knowing where a network is computed"),
    Need(
        (f"{_TRAINER}._do_train",),
        STEP_PLACES,
        "knowing where a step is",
        names=("scaler", "scale", "backward", "optimizer_step"),
    ),
    Need(
        ("ultralytics.nn.backends.ncnn.NCNNBackend.load_model", "ultralytics.nn.autobackend.AutoBackend.__init__"),
        VULKAN,
        "choosing the device of ncnn",
        says=("vulkan",),
    ),
    Need(
        ("ultralytics.data.build.load_inference_source",),
        CHOSEN_ENGINE,
        "comparing engines on the first images",
        takes=("source", "batch"),
    ),
    Need(("ultralytics.utils.ASSETS",), CHOSEN_ENGINE, "comparing engines where there are no images"),
    Need(("ultralytics.engine.exporter.Exporter",), CHOSEN_ENGINE, "padding images for exported models as for weights"),
    Need(("ultralytics.engine.exporter.export_formats",), CHOSEN_ENGINE, "naming the formats that there are"),
    *(
        Need((f"{_CONV}.{name}.forward",), FUSED_BLOCKS, "keeping less for backward", computes=code)
        for name, code in BLOCKS.items()
    ),
)


@functools.cache
def missing(feature: str) -> tuple[str, ...]:
    """Return why a feature cannot be had with the installed Ultralytics; nothing where it can. Cached."""
    return missing_now(feature)


def missing_now(feature: str) -> tuple[str, ...]:
    """Return why a feature cannot be had with Ultralytics as it is now: somebody may have patched it."""
    return tuple(problem for probe in PROBES if probe.feature == feature and (problem := probe.problem()))


def all_missing() -> dict[str, list[str]]:
    """Return every feature that cannot be had with the installed Ultralytics, and why."""
    importlib.import_module("ultralytics")  # one that cannot be imported lacks nothing in particular
    features = dict.fromkeys(probe.feature for probe in PROBES)
    return {feature: list(problems) for feature in features if (problems := missing(feature))}


def asked() -> str:
    """Return a short name for all that is looked for, and where: what was found by other probes says less."""
    probed = sorted((probe.feature, *probe.places) for probe in PROBES)
    return hashlib.sha256(json.dumps(probed).encode()).hexdigest()[:8]


if __name__ == "__main__":  # the doctor asks in a process of its own: importing Ultralytics starts torch
    answer_parent(lambda settings: {"missing": all_missing()})
