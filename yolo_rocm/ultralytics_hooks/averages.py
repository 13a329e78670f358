"""The moving average of a model's weights, in a few calls: older Ultralytics makes three for each of its tensors.

Newer releases make one for all (ultralytics PR 25315), and are left alone. Bits are those of the older releases' own
loop: what it computes for one tensor after the other is computed for many at a time, with the same operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..utils.scoped_patch import attribute
from .models import plain_model
from .probes import same_code

# Tensors in one call: the products are memory that the device must have beside the model.
_TOGETHER: Final = 64


def _de_parallel(self: Any, model: Any) -> None:
    """Look like `ModelEMA.update`; never called."""
    if self.enabled:
        self.updates += 1
        d = self.decay(self.updates)

        msd = de_parallel(model).state_dict()  # type: ignore[name-defined]  # noqa: F821
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()


def _unwrap_model(self: Any, model: Any) -> None:
    """Look like `ModelEMA.update`; never called."""
    if self.enabled:
        self.updates += 1
        d = self.decay(self.updates)

        msd = unwrap_model(model).state_dict()  # type: ignore[name-defined]  # noqa: F821
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()


LOOPS: Final = (_de_parallel, _unwrap_model)


@contextmanager
def averages_at_once() -> Iterator[None]:
    """Update moving averages in a few calls while the context is open, where Ultralytics has the loop that is known."""
    with attribute("ultralytics.utils.torch_utils:ModelEMA", "update").on(_at_once, "averages"):
        yield


def _at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    if not any(same_code(original, loop) for loop in LOOPS):
        return original
    import torch

    @functools.wraps(original)
    def update(self: Any, model: Any) -> None:
        new = plain_model(model).state_dict() if self.enabled else {}
        kept = {name: tensor for name, tensor in self.ema.state_dict().items() if tensor.dtype.is_floating_point}
        if not new or len({tensor.data_ptr() for tensor in kept.values()}) < len(kept):  # layers that share a tensor
            original(self, model)
            return
        self.updates += 1
        d = self.decay(self.updates)
        names = list(kept)
        for start in range(0, len(names), _TOGETHER):
            some = names[start : start + _TOGETHER]
            averages = [kept[name] for name in some]
            products = torch._foreach_mul([new[name].detach() for name in some], 1 - d)
            torch._foreach_mul_(averages, d)
            torch._foreach_add_(averages, products)

    return update
