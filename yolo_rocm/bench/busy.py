"""How long a device was busy in some steps, by class of operator, from the events of torch's profiler.

On a GPU the time of a kernel counts for the operator that launched it: the innermost one around the launch whose name
says what it is, and in backward the node of the graph. The loss and the optimizer are known by ranges that the step
marks; a node in backward belongs to the loss where its forward operator ran in that range. What no operator has
launched goes by the kernel's own name. On a CPU it is the time that operators took themselves.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from ..telemetry.classes import CLASSES, LOSS, OPTIMIZER, OTHER, class_of

LOSS_RANGE, OPTIMIZER_RANGE = "yolo_rocm::loss", "yolo_rocm::optimizer"
_BACKWARD_NODE: Final = "autograd::engine::evaluate_function"
_NOT_AT_WORK: Final = (LOSS_RANGE, OPTIMIZER_RANGE, "Optimizer.", "ProfilerStep")


@dataclass(frozen=True)
class Work:
    """Some time of the device, and who asked for it.

    Attributes:
        us: Microseconds.
        kernel: Name of the kernel; on a CPU that of the operator.
        around: Names of the operators and ranges around it, innermost first; empty where nobody is known.
        node: Sequence number of the backward node it ran in; None in forward.
    """

    us: float
    kernel: str
    around: tuple[str, ...] = ()
    node: int | None = None


@dataclass(frozen=True)
class Busy:
    """Milliseconds of one step that the device was busy.

    Attributes:
        total_ms: In all; kernels that ran at the same time count once.
        by_class: By the names in `CLASSES`.
        on_gpu: Whether it is the time of kernels; otherwise of a CPU's operators.
    """

    total_ms: float
    by_class: dict[str, float]
    on_gpu: bool


def measure(step: Callable[[], object], device: torch.device, steps: int = 2) -> Busy:
    """Run some steps under the profiler and return how long the device was busy in one.

    Args:
        step: Takes one step, with `LOSS_RANGE` and `OPTIMIZER_RANGE` marked.
        device: Where it computes.
        steps: How many.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    on_gpu = device.type == "cuda"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events")  # of cycles, of which there is one
        if on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            with torch.profiler.profile(activities=activities):  # the first one starts CUPTI or roctracer
                torch.cuda.synchronize(device)
        with torch.profiler.profile(activities=activities) as profiler:
            for _ in range(steps):
                step()
            if on_gpu:
                torch.cuda.synchronize(device)
        return busy(profiler.events(), on_gpu, steps)


def busy(events: Iterable[Any], on_gpu: bool, steps: int = 1) -> Busy:
    """Return how long a device was busy in one of several steps, from torch's `FunctionEvent`s."""
    events = list(events)
    if on_gpu:
        running = [event for event in events if _is_kernel(event)]
        total = _union([(event.time_range.start, event.time_range.end) for event in running])
        done = list(_launched(events))
        known = Counter((work.kernel, round(work.us, 3)) for work in done)
        for event in running:
            us = float(event.time_range.end - event.time_range.start)
            if known[event.name, round(us, 3)]:
                known[event.name, round(us, 3)] -= 1
            else:
                done.append(Work(us, event.name))
    else:
        done = list(_computed(events))
        total = sum(work.us for work in done)
    of_loss = _loss_nodes(events)
    sums = dict.fromkeys(CLASSES, 0.0)
    for work in done:
        sums[classify(work, of_loss)] += work.us / 1e3 / steps
    return Busy(total / 1e3 / steps, sums, on_gpu)


def classify(work: Work, loss_nodes: frozenset[int] = frozenset()) -> str:
    """Return the class of some work.

    Args:
        work: The work.
        loss_nodes: Sequence numbers of the backward nodes that belong to the loss.
    """
    if any(name == OPTIMIZER_RANGE or name.startswith("Optimizer.") for name in work.around):
        return OPTIMIZER
    if LOSS_RANGE in work.around or work.node in loss_nodes:
        return LOSS
    kinds = (class_of(name) for name in (*work.around, work.kernel))
    return next((kind for kind in kinds if kind != OTHER), OTHER)


def _on_cpu(event: Any) -> bool:
    return str(event.device_type).endswith("CPU")


def _is_kernel(event: Any) -> bool:
    """Return whether an event is work of a GPU; ranges have a shadow there, which is none."""
    on_device = not _on_cpu(event)
    return on_device and not getattr(event, "is_user_annotation", False) and not event.name.startswith(_NOT_AT_WORK)


def _launched(events: Iterable[Any]) -> Iterator[Work]:
    for event in events:
        if _on_cpu(event) and event.kernels:
            around, node = _around(event)
            for kernel in event.kernels:
                if kernel.name != event.name and not kernel.name.startswith(_NOT_AT_WORK):
                    yield Work(float(kernel.duration), kernel.name, around, node)


def _computed(events: Iterable[Any]) -> Iterator[Work]:
    for event in events:
        if _on_cpu(event):
            around, node = _around(event)
            yield Work(float(event.self_cpu_time_total), event.name, around, node)


def _around(event: Any) -> tuple[tuple[str, ...], int | None]:
    """Return the names from an operator outwards, and the sequence number of the backward node it is in."""
    names: list[str] = []
    node = None
    while event is not None:
        names.append(event.name)
        if node is None and event.name.startswith(_BACKWARD_NODE):
            node = event.sequence_nr
        event = event.cpu_parent
    return tuple(names), node


def _loss_nodes(events: Iterable[Any]) -> frozenset[int]:
    """Return the numbers of what autograd has recorded in the range of the loss."""
    inside = (event for event in events if event.sequence_nr >= 0 and not event.name.startswith(_BACKWARD_NODE))
    return frozenset(event.sequence_nr for event in inside if LOSS_RANGE in _around(event)[0])


def _union(spans: list[tuple[float, float]]) -> float:
    """Return the length of some intervals together, where they overlap once."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
