"""The place that knows Ultralytics' engine from inside: named probes and named, undoable interventions.

Its data sets and transforms are the matter of `ultralytics_data`. Nothing here imports Ultralytics before it is used.
"""

from .arguments import check_arguments, check_data, default_argument, knows_argument
from .children import children_follow, run_command_line
from .loaders import loaders_built_by, loaders_follow
from .log import PREFIX, progress, say, say_diagnosis
from .models import MODES, Around, check_model, load_model, model_class, plain_model, torch_module, wrap_modes
from .probes import (
    AUGMENT_STEP,
    CHILDREN,
    DAMAGED_IMAGES,
    DEVICE_AUGMENT,
    EARLY_CALLBACKS,
    PREDICT_CALLBACKS,
    REDUCED_DECODE,
    missing,
)
from .trainers import (
    announces_inside_train,
    asked_batch,
    asked_workers,
    augment_on_device,
    loading_facts,
    mosaic_closes_after,
    set_trainer_argument,
    worker_count,
)
from .versions import OLDEST, newest_tested, require

__all__ = [
    "AUGMENT_STEP",
    "CHILDREN",
    "DAMAGED_IMAGES",
    "DEVICE_AUGMENT",
    "EARLY_CALLBACKS",
    "MODES",
    "OLDEST",
    "PREDICT_CALLBACKS",
    "PREFIX",
    "REDUCED_DECODE",
    "Around",
    "announces_inside_train",
    "asked_batch",
    "asked_workers",
    "augment_on_device",
    "check_arguments",
    "check_data",
    "check_model",
    "children_follow",
    "default_argument",
    "knows_argument",
    "load_model",
    "loaders_built_by",
    "loaders_follow",
    "loading_facts",
    "missing",
    "model_class",
    "mosaic_closes_after",
    "newest_tested",
    "plain_model",
    "progress",
    "require",
    "run_command_line",
    "say",
    "say_diagnosis",
    "set_trainer_argument",
    "torch_module",
    "worker_count",
    "wrap_modes",
]
