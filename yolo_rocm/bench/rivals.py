"""Convolutions of other projects, next to ours in `bench conv`: each result is right, wrong, or not to be had here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import torch

from ..conv.plan import CONVOLUTION, Operands
from ..engines.devices import alive, on
from ..engines.faults import in_one_line
from ..engines.measure import as_in_the_seam, milliseconds
from ..engines.names import Pass
from ..engines.precision import without_tf32
from ..engines.tuning import agrees
from ..errors import DeviceLostError
from .layers import ModelLayer

WRONG: Final = "wrong"
NOT_RUNNABLE: Final = "not runnable here"
BACKWARD: Final = Pass.BACKWARD  # the pass of a way that computes both gradients in one call
# A call that takes longer is timed once: a median of minutes says no more.
_SLOW_MS: Final = 1000.0

Results = Mapping[Pass, torch.Tensor]  # by the name of the pass that each belongs to


class NotRunnableError(Exception):
    """A rival does not compute this here; the message says why in one line. It never leaves a benchmark."""


class Rival(ABC):
    """Another project's convolution. Nothing of the project is imported before `missing` is asked.

    Attributes:
        name: On the command line and in tables.
        passes: What it computes on its own; `backward` where both gradients come from one call.
    """

    name: ClassVar[str]
    passes: ClassVar[tuple[Pass, ...]]

    @abstractmethod
    def missing(self, device: str) -> str:
        """Return why it cannot be had on a device at all; nothing where it can."""

    @abstractmethod
    def version(self) -> str:
        """Return what is measured, where it can be had."""

    @abstractmethod
    def call(self, layer: ModelLayer, which: Pass, operands: Operands) -> Callable[[], Results]:
        """Return a pass as a call, with results in the layout of the problem.

        Raises:
            NotRunnableError: It has no such pass, or not for this problem.
        """


@dataclass(frozen=True)
class Outcome:
    """What came of one pass of a rival.

    Attributes:
        milliseconds: Its time, where the result is right.
        verdict: `WRONG` or `NOT_RUNNABLE`; empty where the result is right.
        why: The reason in one line, with a verdict.
    """

    milliseconds: float | None
    verdict: str = ""
    why: str = ""


def bench_rivals(
    missing: Mapping[Rival, str], layer: ModelLayer, operands: Operands, budget: int, repeats: int
) -> Iterator[tuple[Rival, Pass, Outcome]]:
    """Yield what came of every pass of every rival, after ours has been measured: a rival may spoil the tensors.

    Args:
        missing: The rivals, each with why it cannot be had here, or nothing.
        layer: The convolution.
        operands: Its tensors.
        budget: Workspace of the plain sum in bytes.
        repeats: Timed calls.
    """
    references: dict[Pass, torch.Tensor] = {}
    failed = ""
    if not all(missing.values()):
        plain = CONVOLUTION.reference(layer.problem)
        try:
            with as_in_the_seam():
                for which in layer.passes:
                    references[which] = CONVOLUTION.run(plain, layer.problem, which, operands, budget)
        except torch.cuda.OutOfMemoryError as error:
            failed = f"{plain.name}, which it is compared with, fails with {in_one_line(error)}"
    for rival, gone in missing.items():
        for which in rival.passes:
            if which not in (*layer.passes, BACKWARD):
                continue
            if gone or failed:
                yield rival, which, Outcome(None, NOT_RUNNABLE, gone or failed)
                continue
            with without_tf32():
                found = _measured(rival, layer, which, operands, references, repeats)
            yield rival, which, found


def _measured(
    rival: Rival, layer: ModelLayer, which: Pass, operands: Operands, references: Results, repeats: int
) -> Outcome:
    """Check a pass of a rival as candidates of ours are checked, then time it as they are timed.

    Raises:
        DeviceLostError: It has taken the device with it.
    """
    problem, device = layer.problem, torch.device(layer.problem.device)
    try:
        with on(device):
            call = rival.call(layer, which, operands)
            why = _what_is_wrong(layer, call(), references)
            if why:
                return Outcome(None, WRONG, why)
            return Outcome(milliseconds(call, device, repeats, give_up=_SLOW_MS))
    except NotRunnableError as error:
        return Outcome(None, NOT_RUNNABLE, str(error))
    except Exception as error:  # another project's compiler may raise anything
        if not alive(device):
            raise DeviceLostError(
                f"{device} does not answer any more since the rival '{rival.name}' computed {which} of {problem}: "
                f"{in_one_line(error)}. Nothing more can be computed there in this process: start the same command "
                f"again, without {rival.name} in rivals=."
            ) from error
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return Outcome(None, NOT_RUNNABLE, in_one_line(error))


def _what_is_wrong(layer: ModelLayer, results: Results, references: Results) -> str:
    for which, result in results.items():
        exact = references[which]
        if result.shape != exact.shape:
            return f"{which} has the shape {tuple(result.shape)} instead of {tuple(exact.shape)}"
        if not agrees(CONVOLUTION, layer.problem, which, result, exact):
            return f"{which} is off by {CONVOLUTION.distance(layer.problem, which, result, exact):.1g} of its size"
    return ""
