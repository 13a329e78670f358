"""The room that knows Ultralytics from inside: named probes, and named, undoable patches of its engine and data sets.

The public names of the modules below are this package's own: callers write `hooks.say(...)`, not which file it is in.
Nothing here imports torch or Ultralytics before it is used. May import rooms from `telemetry` down to `utils`; what it
needs from above (who explains an error, who takes a trainer over) is passed in. A newcomer comes here when a release of
Ultralytics has moved something: what is relied on is a row in `probes`, and a patch is a `scoped_patch.attribute`.
"""

from .amp_check import amp_check_without_wait
from .anchors import anchors_once
from .arguments import (
    benchmark_takes_format,
    check_arguments,
    check_data,
    check_mode,
    default_argument,
    found_file,
    knows_argument,
)
from .averages import averages_at_once
from .backends import compiled_backend, network_of, predict_backend, require_backends, traced
from .checkpoints import discard_run_folder, forget_run_folder, is_writer, whole_runs, write_whole_checkpoints
from .children import children_follow, launch_is_possible, ranks_command, run_command_line
from .distributed import ranks_join, runs_launched_file
from .everywhere import AroundTrainer, MakeTrainer, calls_wrapped, trainers_wrapped, with_callbacks
from .exported_model import PRECISION, ExportedModel, named_arguments, only_torch
from .fused_blocks import fused_blocks
from .fused_losses import fused_losses
from .graphed_networks import graphed_networks, why_not_graphed
from .inference_blocks import inference_blocks
from .inference_networks import around_inference, inference_networks
from .layouts import (
    autocast_of,
    first_batch_kept,
    is_channels_last,
    layout_is_given,
    to_layout,
    train_in_layout,
    why_layout_stays,
)
from .lean_networks import lean_networks
from .loaders import loaders_built_by, loaders_follow
from .log import progress_bar, say, say_from_any_rank
from .memory_errors import is_memory_error, memory_errors_recognised, recognise_in_backward
from .models import (
    Around,
    ObjectMode,
    all_modes_wrapped,
    check_model,
    is_compiled,
    load_model,
    plain_model,
    torch_module,
    wrap_modes,
)
from .ncnn_precision import ncnn_computes_in
from .optimizers import fused_optimizers, fused_sgd
from .predicting import (
    compiles_predictions,
    export_weights,
    first_images,
    providers_of,
    register_migraphx,
    sample_images,
    size_of,
    takes_vulkan,
    weights_of,
)
from .probes import (
    CHILDREN,
    CHOSEN_ENGINE,
    DAMAGED_IMAGES,
    EARLY_CALLBACKS,
    FUSED_BLOCKS,
    GRAPHED_INFERENCE,
    GRAPHED_NETWORKS,
    INFERENCE_BLOCKS,
    LEAN_NETWORKS,
    PREDICT_CALLBACKS,
    REDUCED_DECODE,
    WITHOUT_MODELS,
    missing,
)
from .ranks import place_of_rank, ranks_asked, reports
from .resuming import (
    check_resumable,
    code_of_script,
    drop_unfinished_results,
    epochs_in,
    finished_epochs,
    is_last_epoch,
    resumed_from,
    run_folder,
    unfinished,
)
from .step_places import can_watch_steps, step_watched
from .train_steps import (
    compiled,
    compiled_anew,
    detector,
    forget_compiled,
    installed_version,
    loss_of,
    loss_of_predicted,
    made_batch,
    record_losses,
    why_not_compiled,
)
from .trainers import (
    announces_inside_train,
    asked_workers,
    class_names,
    loading_facts,
    nan_recoveries,
    recovers_from_nan,
    scores,
    set_trainer_argument,
)
from .versions import newest_tested, require
from .weights import MemoryWeights, WeightsFile
