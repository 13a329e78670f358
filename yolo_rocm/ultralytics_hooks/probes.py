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
        takes: Arguments of the function there.
        names: Attributes and variables that its code must name; how one sees what an object will carry.
        says: Text constants of its code, such as events.
        keys: Keys of the mapping there.
        computes: A function whose code its own must be.
        words: What `words_of` must return for it.
    """

    places: tuple[str, ...]
    feature: str
    takes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    computes: Callable[..., Any] | None = None
    words: str = ""

    def problem(self) -> str:
        """Return a sentence on what does not hold, or nothing."""
        problems = [self._problem_at(place) for place in self.places]
        return "" if "" in problems else f"{' and '.join(problems)}; it is needed for {self.feature}"

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
    Need(("ultralytics.YOLO",), TRAINING),
    *(Need((f"{_MODEL}.{mode}",), TRAINING) for mode in ("train", "val", "predict")),
    Need((f"{_MODEL}.add_callback",), TRAINING, takes=("event", "func")),
    Need((f"{_MODEL}.__init__",), TRAINING, names=("callbacks",)),
    Need(("ultralytics.utils.callbacks.base.default_callbacks",), TRAINING, keys=EVENTS),
    Need((f"{_TRAINER}.train",), TRAINING),
    Need((f"{_TRAINER}.__init__",), TRAINING, names=("args", "device", "save_dir", "batch_size", "epochs")),
    Need((f"{_TRAINER}.get_model",), TRAINING),
    Need((f"{_TRAINER}.run_callbacks",), TRAINING, takes=("event",)),
    Need(("ultralytics.data.build.InfiniteDataLoader",), TRAINING),
    Need(("ultralytics.data.build.InfiniteDataLoader.reset",), TRAINING),
    Need(("ultralytics.data.dataset",), TRAINING),
    Need(("ultralytics.utils.LOGGER.info",), TRAINING),
    Need(("ultralytics.utils.colorstr",), TRAINING),
    Need(("ultralytics.utils.TQDM",), TRAINING),
    Need(
        ("ultralytics.utils.DEFAULT_CFG_DICT",),
        TRAINING,
        keys=("batch", "device", "epochs", "exist_ok", "resume", "workers"),
    ),
    Need(("ultralytics.utils.DATASETS_DIR",), TRAINING),
    Need(("ultralytics.utils.ROOT",), TRAINING),
    Need(("ultralytics.utils.RANK",), TRAINING),
    Need(("ultralytics.RTDETR",), "RT-DETR from its YAML"),
    Need(("ultralytics.cfg._handle_deprecation",), ARGUMENT_CHECK),
    Need(("ultralytics.cfg.check_cfg",), ARGUMENT_CHECK),
    Need(("ultralytics.utils.downloads.GITHUB_ASSETS_NAMES",), ARGUMENT_CHECK),
    Need(("ultralytics.utils.checks.check_yolov5u_filename",), ARGUMENT_CHECK),
    Need((f"{_TRAINER}.__init__",), EARLY_CALLBACKS, says=(EVENTS[0],)),
    Need(("ultralytics.engine.predictor.BasePredictor.inference",), PREDICT_CALLBACKS),
    Need(("ultralytics.nn.autobackend.AutoBackend.warmup",), PREDICT_CALLBACKS),
    Need(("ultralytics.engine.tuner.subprocess", "ultralytics.engine.trainer.MultiTrainer"), CHILDREN),
    Need(("ultralytics.engine.trainer.subprocess",), CHILDREN),
    Need(("ultralytics.utils.loss.make_anchors",), ANCHORS, takes=("feats", "strides", "grid_cell_offset")),
    *(Need((place,), FUSED_LOSSES, words=words) for place, words in LOSSES.items()),
    Need((f"{_TRAINER}.build_optimizer",), FUSED_OPTIMIZERS, takes=("self", "model", "name")),
    Need((f"{_TRAINER}.__init__",), WHOLE_CHECKPOINTS, names=("wdir", "last", "best")),
    Need(("ultralytics.engine.trainer.strip_optimizer",), WHOLE_CHECKPOINTS, takes=("f", "s")),
    Need(("ultralytics.engine.trainer.get_save_dir", "ultralytics.cfg.get_save_dir"), WHOLE_CHECKPOINTS),
    Need((f"{_TRAINER}._setup_ddp",), SEVERAL_GPUS),
    Need((f"{_TRAINER}._do_train",), SEVERAL_GPUS),
    Need(("ultralytics.engine.validator.AutoBackend",), SEVERAL_GPUS),
    Need(("ultralytics.engine.validator.BaseValidator.__call__",), WITHOUT_MODELS),
    Need(("ultralytics.engine.predictor.BasePredictor.__call__",), WITHOUT_MODELS),
    Need(("ultralytics.utils.DEFAULT_CFG",), WITHOUT_MODELS),
    Need(("ultralytics.utils.callbacks.get_default_callbacks",), WITHOUT_MODELS),
    Need(("ultralytics.engine.trainer.autocast",), MEMORY_ERRORS),
    Need(("ultralytics.utils.SETTINGS",), ARGUMENT_CHECK, keys=("weights_dir",)),
    # Released versions cannot fuse weights that were written in channels_last.
    Need((f"{_TRAINER}.save_model",), LAYOUT, names=("contiguous_format",)),
    Need((f"{_TRAINER}.preprocess_batch",), LAYOUT, takes=("batch",)),
    Need(("ultralytics.cfg.entrypoint",), CHILDREN),
    Need((f"{_DATASET}.load_image",), DAMAGED_IMAGES),
    Need(
        (f"{_DATASET}.__init__",), DAMAGED_IMAGES, names=("ims", "im_files", "npy_files", "im_hw0", "im_hw", "buffer")
    ),
    Need((f"{_AUGMENT}.Format._format_img",), IN_PLACE, takes=("img",)),
    Need(("ultralytics.data.build.build_yolo_dataset",), BENCH_LOADER),
    Need(("ultralytics.data.build.build_dataloader",), BENCH_LOADER, takes=("workers", "shuffle")),
    Need(("ultralytics.data.utils.check_det_dataset",), BENCH_LOADER),
    Need(("ultralytics.cfg.get_cfg",), BENCH_LOADER, takes=("overrides",)),
    Need(("ultralytics.cfg.get_cfg",), BENCH_TRAIN),
    Need(("ultralytics.nn.tasks.BaseModel.loss",), BENCH_TRAIN, takes=("batch", "preds")),
    Need(("ultralytics.utils.torch_utils.attempt_compile",), COMPILE_MODE, takes=("model", "device", "mode")),
    *(
        Need(("ultralytics.nn.tasks.BaseModel._predict_once",), feature, takes=("x",))
        for feature in (LEAN_NETWORKS, GRAPHED_NETWORKS, GRAPHED_INFERENCE, STEP_PLACES)
    ),
    Need((f"{_CONV}.Conv.forward",), INFERENCE_BLOCKS, computes=BLOCKS["Conv"]),
    Need((f"{_CONV}.Conv.forward_fuse",), INFERENCE_BLOCKS, computes=FUSED_CODE),
    Need(("ultralytics.nn.tasks.BaseModel.forward",), INFERENCE_BLOCKS),
    Need((f"{_TRAINER}._do_train",), STEP_PLACES, names=("scaler", "scale", "backward", "optimizer_step")),
    Need(
        ("ultralytics.nn.backends.ncnn.NCNNBackend.load_model", "ultralytics.nn.autobackend.AutoBackend.__init__"),
        VULKAN,
        says=("vulkan",),
    ),
    Need(("ultralytics.data.build.load_inference_source",), CHOSEN_ENGINE, takes=("source", "batch")),
    Need(("ultralytics.utils.ASSETS",), CHOSEN_ENGINE),
    Need(("ultralytics.engine.exporter.Exporter",), CHOSEN_ENGINE),
    Need(("ultralytics.engine.exporter.export_formats",), CHOSEN_ENGINE),
    *(Need((f"{_CONV}.{name}.forward",), FUSED_BLOCKS, computes=code) for name, code in BLOCKS.items()),
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
