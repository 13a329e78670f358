"""The place that knows Ultralytics' engine from inside: named probes and named, undoable interventions.

Its data sets and transforms are the matter of `ultralytics_data`. Nothing here imports Ultralytics before it is used.
"""

from .amp_check import amp_check_without_wait
from .arguments import benchmark_takes_format, check_arguments, check_data, check_mode, default_argument, knows_argument
from .checkpoints import Saving, is_writer, whole_runs, write_whole_checkpoints
from .children import children_follow, run_command_line
from .everywhere import AroundTrainer, MakeTrainer, with_callbacks, wrap_calls, wrap_trainers
from .loaders import loaders_built_by, loaders_follow
from .log import PREFIX, progress, say, say_diagnosis
from .memory_errors import is_memory_error, memory_errors_recognised, recognise_in_backward
from .models import (
    MODES,
    Around,
    ObjectMode,
    all_modes_wrapped,
    check_model,
    load_model,
    model_class,
    plain_model,
    torch_module,
    wrap_modes,
)
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
    class_names,
    loading_facts,
    loads_data_already,
    mosaic_closes_after,
    nan_recoveries,
    recovers_from_nan,
    set_trainer_argument,
    worker_count,
)
from .versions import OLDEST, require

__all__ = [
    "MODES",
    "OLDEST",
    "PREFIX",
    "Around",
    "AroundTrainer",
    "MakeTrainer",
    "ObjectMode",
    "OptimizerSteps",
    "Saving",
    "all_modes_wrapped",
    "amp_check_without_wait",
    "asked_batch",
    "asked_workers",
    "augment_on_device",
    "benchmark_takes_format",
    "check_arguments",
    "check_data",
    "check_mode",
    "check_model",
    "children_follow",
    "class_names",
    "closes_mosaic_next",
    "default_argument",
    "drop_unfinished_results",
    "finished_epochs",
    "in_one_process",
    "is_memory_error",
    "is_writer",
    "knows_argument",
    "load_model",
    "loaders_built_by",
    "loaders_follow",
    "loading_facts",
    "loads_data_already",
    "memory_errors_recognised",
    "model_class",
    "mosaic_closes_after",
    "nan_recoveries",
    "plain_model",
    "progress",
    "recognise_in_backward",
    "recovers_from_nan",
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
    "with_callbacks",
    "worker_count",
    "wrap_calls",
    "wrap_modes",
    "wrap_trainers",
    "write_whole_checkpoints",
]
