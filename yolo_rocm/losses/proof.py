"""A kernel of a loss is used where its results are those of what it takes the place of, which is looked at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Final, NamedTuple

import torch

from ..engines.device_state import STATE
from ..engines.measure import relative_error
from ..engines.triton.available import device_reason
from ..engines.trust.record import record_of
from .launches import OPERATOR

# What results may differ by: in half precision the original rounds in between.
_ALLOWED: Final = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_MOST_TRIES: Final = 20
Results = Sequence[torch.Tensor]


class Use(NamedTuple):
    """A kernel as it is used somewhere.

    Attributes:
        kernel: Its name.
        device: Where.
        dtype: Of what is predicted.
        kind: What else it is compiled for.
    """

    kernel: str
    device: torch.device
    dtype: torch.dtype
    kind: Hashable = None


class State(Enum):
    """Whether a kernel may be used."""

    NO = "no"
    UNPROVEN = "unproven"
    PROVEN = "proven"


_proven: set[Use] = STATE.container(set())
_tries: Counter[Use] = STATE.container(Counter())  # that have decided nothing


def state(use: Use) -> State:
    """Return whether a kernel may be used, or has to prove itself first."""
    if use in _proven:
        return State.PROVEN
    device = str(use.device)
    if use.device.type == "cuda" and torch.cuda.is_current_stream_capturing():  # nobody can look at results now
        return State.NO
    if use.dtype not in _ALLOWED or device_reason(device) or _tries[use] >= _MOST_TRIES:
        return State.NO
    return State.NO if record_of(device).quarantine_reason(OPERATOR, use.kernel, use.dtype) else State.UNPROVEN


def prove(
    use: Use, ours: Callable[[], Results], right: Callable[[], Results], allowed: Sequence[float] | None = None
) -> bool:
    """Compare what a kernel gives with what is right; where it differs, or fails, the kernel is not used there.

    Nothing is decided where the right results are zero all over or not finite, or where there is no memory for both.

    Args:
        use: The kernel.
        ours: Computes the results by it.
        right: Computes what they should be.
        allowed: What each of them may differ by; None is what half precision rounds in between.

    Returns:
        Whether the kernel may be used, from this very step on: the numbers of a training are not to depend on whether
        an earlier one of the process has proven it.
    """
    _tries[use] += 1
    try:
        expected = right()
        says_something = all(bool(each.isfinite().all()) and bool(each.any()) for each in expected)
    except RuntimeError:  # it is computed for this alone; where it matters it is raised again
        return False
    if not says_something:
        return False
    try:
        errors = [relative_error(got, exact) for got, exact in zip(ours(), expected, strict=True)]
    except Exception as error:  # a compiler, a launch or the memory of a device may raise anything
        if "out of memory" not in str(error).lower():
            _leave_out(use, f"{type(error).__name__}: {error}")
        return False
    most = allowed or [_ALLOWED[use.dtype]] * len(errors)
    if all(error <= limit for error, limit in zip(errors, most, strict=True)):  # not where one is NaN
        _proven.add(use)
        return True
    said, limits = (", ".join(f"{each:.1e}" for each in numbers) for numbers in (errors, most))
    _leave_out(use, f"it differs from what it takes the place of by {said}, and {limits} is allowed")
    return False


def _leave_out(use: Use, why: str) -> None:
    record_of(str(use.device)).quarantine(OPERATOR, use.kernel, use.dtype, why)
