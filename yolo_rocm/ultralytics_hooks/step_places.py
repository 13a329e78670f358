"""Places of a training step that whoever times it wants to know of: network, loss, backward pass and optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ..telemetry.places import BACKWARD, LOSS, NETWORK, OPTIMIZER, Reached
from .models import is_compiled, plain_model
from .network_calls import NetworkCall, network_calls
from .probes import STEP_PLACES, missing
from .trainers import in_place_of


def can_watch_steps(trainer: Any) -> bool:
    """Return whether the places of a trainer's steps can be seen; those of a compiled model would be compiled anew."""
    return not missing(STEP_PLACES) and not is_compiled(trainer.model) and getattr(trainer, "scaler", None) is not None


@contextmanager
def step_watched(trainer: Any, reached: Reached) -> Iterator[None]:
    """Tell which place a step has reached while the context is open.

    Args:
        trainer: The trainer; `can_watch_steps` holds for it.
        reached: Called with the name of the place, and what the network has returned or the loss.
    """
    model, scaler = plain_model(trainer.model), trainer.scaler
    scale, step = scaler.scale, trainer.optimizer_step

    def told_scale(loss: Any) -> Any:
        reached(LOSS, loss)
        return scale(loss)

    def told_step(*args: Any, **kwargs: Any) -> Any:
        reached(BACKWARD, None)
        result = step(*args, **kwargs)
        reached(OPTIMIZER, None)
        return result

    def told_network(call: NetworkCall) -> Any:
        result = call()
        if call.model is model:
            reached(NETWORK, result)
        return result

    with ExitStack() as undo:
        undo.enter_context(in_place_of(scaler, "scale", told_scale))
        undo.enter_context(in_place_of(trainer, "optimizer_step", told_step))
        undo.enter_context(network_calls(told_network, "places of a step", training=True))
        yield
