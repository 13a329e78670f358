"""The place that knows Ultralytics' engine from inside: named probes and named, undoable interventions.

Its data sets and transforms are the matter of `ultralytics_data`. Nothing here imports Ultralytics before it is used.
"""

from .arguments import check_arguments, check_data, default_argument, knows_argument
from .checkpoints import Saving, is_writer, whole_runs, write_whole_checkpoints
from .children import children_follow, run_command_line
from .loaders import loaders_built_by, loaders_follow
from .log import PREFIX, progress, say, say_diagnosis
from .models import MODES, Around, check_model, load_model, model_class, plain_model, torch_module, wrap_modes
from .resuming import (
    OptimizerSteps,
    closes_mosaic_next,
    drop_unfinished_results,
    finished_epochs,
    in_one_process,
    restore_gradients,
    restore_trainer,
    resume_facts,
    resumed_from,
    trainer_state,
    unfit,
)
from .trainers import (
    asked_batch,
    asked_workers,
    augment_on_device,
    loading_facts,
    loads_data_already,
    mosaic_closes_after,
    set_trainer_argument,
    worker_count,
)
from .versions import OLDEST, require

__all__ = [
    "MODES",
    "OLDEST",
    "PREFIX",
    "Around",
    "OptimizerSteps",
    "Saving",
    "asked_batch",
    "asked_workers",
    "augment_on_device",
    "check_arguments",
    "check_data",
    "check_model",
    "children_follow",
    "closes_mosaic_next",
    "default_argument",
    "drop_unfinished_results",
    "finished_epochs",
    "in_one_process",
    "is_writer",
    "knows_argument",
    "load_model",
    "loaders_built_by",
    "loaders_follow",
    "loading_facts",
    "loads_data_already",
    "model_class",
    "mosaic_closes_after",
    "plain_model",
    "progress",
    "require",
    "restore_gradients",
    "restore_trainer",
    "resume_facts",
    "resumed_from",
    "run_command_line",
    "say",
    "say_diagnosis",
    "set_trainer_argument",
    "torch_module",
    "trainer_state",
    "unfit",
    "whole_runs",
    "worker_count",
    "wrap_modes",
    "write_whole_checkpoints",
]
