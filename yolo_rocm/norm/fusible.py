"""Which BatchNorm and activation modules may be computed as one: those where the difference cannot be seen.

Looked at on every call, because any of it can change between two: a BatchNorm frozen by `eval()`, a hook, another
module in its place.
"""

from __future__ import annotations

from typing import Any, Final

from torch import nn

from ..engines.torch_state import foreign_global_hook, has_hooks
from .problem import IDENTITY, LEAKY_RELU, RELU, SILU

ACTIVATION_MODULES: Final[dict[type[nn.Module], str]] = {
    nn.SiLU: SILU,
    nn.ReLU: RELU,
    nn.LeakyReLU: LEAKY_RELU,
    nn.Identity: IDENTITY,
}


def fusible(norm: Any, act: Any) -> bool:
    """Return whether `act(norm(x))` may be computed as one, as far as the modules decide.

    An activation that works in place, or that many layers share, makes no difference: only the activation sees what the
    BatchNorm returns.
    """
    if type(norm) is not nn.BatchNorm2d or type(act) not in ACTIVATION_MODULES:  # no subclass, nothing parametrised
        return False
    if not norm.training or not norm.track_running_stats or norm.momentum is None or not norm.eps > 0:
        return False
    return not (foreign_global_hook() or has_hooks(norm.__dict__) or has_hooks(act.__dict__))
