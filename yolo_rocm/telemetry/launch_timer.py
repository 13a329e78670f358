"""How long the host takes to launch a step, next to how long the device takes until it is through.

At a few places of a step the host's clock is read and a mark put into the device's stream. A mark that the device
reaches as soon as the host has put it there says that the device had nothing else to do; one that it reaches later says
by how much the device is behind. Nothing is waited for, and no layer is watched: such a step is like all others.
"""

from __future__ import annotations

import time
from itertools import pairwise

import torch

from ..conv.step_timer import Mark, mark, milliseconds, passed

_PLACES = 5  # beginning, network, loss, backward, optimizer


class LaunchTimer:
    """The marks of one step, taken where a device had nothing to do when it began.

    Args:
        device: Where the training computes. On a CPU there is nothing to be launched.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._places: list[tuple[float, Mark]] = []
        # After the step before, Ultralytics has waited for its loss.
        self._is_idle = device.type == "cuda" and bool(torch.cuda.current_stream(device).query())

    def reached(self) -> None:
        """Note the next place of the step."""
        if self._is_idle:
            self._places.append((time.perf_counter(), mark(self._device)))

    def has_passed(self) -> bool:
        """Return whether all marks can be read without waiting."""
        return all(passed(moment) for _, moment in self._places)

    def result(self) -> dict[str, float]:
        """Return `host_ms` and `device_ms`; nothing where the step did not come by all places, as without optimizer.

        In the loss and in the optimizer the host may wait for the device. By how much the device is behind when they
        begin is taken off. Where it waits for what they compute themselves, which is little, that is still in it.
        """
        if len(self._places) != _PLACES:
            return {}
        (clock, start), *_ = self._places
        host = [1e3 * (when - clock) for when, _ in self._places]
        device = [milliseconds(start, moment) for _, moment in self._places]
        network, loss, backward, optimizer = (after - before for before, after in pairwise(host))
        behind_network, behind_backward = (max(0.0, device[place] - host[place]) for place in (1, 3))
        loss, optimizer = max(0.0, loss - behind_network), max(0.0, optimizer - behind_backward)
        return {"host_ms": network + loss + backward + optimizer, "device_ms": device[-1]}
