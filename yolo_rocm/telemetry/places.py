"""Places of a training step, which whoever runs it has to tell."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

# In their order; the last two only where the optimizer makes a step.
NETWORK, LOSS, BACKWARD, OPTIMIZER = "network", "loss", "backward", "optimizer"
# Called with a place that has been reached, and with what the network has returned, or the loss.
Reached = Callable[[str, Any], None]
# Keeps a step watched: calls what it is given at each of its places.
Watch = Callable[[Reached], AbstractContextManager[None]]
