"""What autograd is given to keep instead of a tensor: the tensor itself, or a recipe to compute it once more.

Each has `value()`, which is what backward gets, and `tensors()`, which is what stays in memory for it. Where there are
hooks for saved tensors, torch does not notice that a tensor was changed in place before backward: it is checked here.

Whoever keeps one says so by `use()`: what several layers read is computed again for the first of them that backward
comes to, and stays until the last one has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch

from ..engines.autocast import without_autocast
from ..engines.devices import current_stream

# More steps than these behind each other are not computed again for one tensor: a sum of sums of sums is kept.
MOST_STEPS: Final = 4
_AGAIN: Final = (
    "Lean memory computes activations again from such tensors: where that is meant, train with step.memory: full."
)


class Keeping:
    """What is kept in the place of a tensor.

    Attributes:
        steps: How many recipes are behind each other.
    """

    __slots__ = ("steps",)

    steps: int

    def value(self) -> torch.Tensor:
        """Return the tensor: bits, shape and layout are those of the first time."""
        if torch.is_grad_enabled():  # gradients of gradients: torch puts the value into its place in the graph itself
            with torch.no_grad():
                return without_autocast(self.made)
        return without_autocast(self.made)

    def use(self) -> None:
        """Say that somebody more is going to ask for the tensor, once."""

    def made(self) -> torch.Tensor:
        """Return the tensor as a part of something else, where neither gradients nor autocast are on."""
        raise NotImplementedError

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        raise NotImplementedError


class Kept(Keeping):
    """A tensor, kept as it is.

    Args:
        tensor: The tensor, a leaf or detached.
        version: Its counter of changes in place.
    """

    __slots__ = ("_tensor", "_version")

    def __init__(self, tensor: torch.Tensor, version: int) -> None:
        self.steps, self._tensor, self._version = 0, tensor, version

    def made(self) -> torch.Tensor:
        """Return the tensor.

        Raises:
            RuntimeError: It was changed in place in the meantime.
        """
        if self._tensor._version != self._version:
            raise changed(self._tensor, self._version)
        return self._tensor

    value = made

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        yield self._tensor


class _Recipe(Keeping):
    __slots__ = ("_asked", "_shape", "_stride", "_uses", "_value", "_when")

    _when: tuple[int, int]  # counter of changes and stream of the value when it was computed

    def __init__(self, tensor: torch.Tensor, steps: int) -> None:
        self._shape, self._stride, self.steps = tensor.shape, tensor.stride(), steps
        self._uses = self._asked = 0
        self._value: torch.Tensor | None = None

    def use(self) -> None:
        """Say that somebody more is going to ask for the tensor, once."""
        self._uses += 1

    def made(self) -> torch.Tensor:
        """Compute the tensor for the first one who asks.

        The others get it as well, unless it was changed since or is computed on another stream, which has not waited.
        """
        value = self._value
        if value is None or self._when != _when(value):
            value = self._make()
            if value.shape != self._shape or value.stride() != self._stride:  # what reads it may differ by the layout
                again = torch.empty_strided(self._shape, self._stride, dtype=value.dtype, device=value.device)
                value = again.copy_(value)
        self._asked += 1
        if self._asked < self._uses:
            self._value, self._when = value, _when(value)
        else:  # a graph that is retained begins anew
            self._asked, self._value = 0, None
        return value

    def _make(self) -> torch.Tensor:
        raise NotImplementedError


class Activation(_Recipe):
    """An activation that is computed from what is kept for backward anyway.

    Args:
        tensor: The activation; not kept.
        recompute: Computes it again, to the same bits.
        sources: The tensors that `recompute` reads.
    """

    __slots__ = ("_recompute", "_sources")

    def __init__(
        self, tensor: torch.Tensor, recompute: Callable[[], torch.Tensor], sources: Sequence[torch.Tensor | None]
    ) -> None:
        super().__init__(tensor, 0)
        self._recompute = recompute
        self._sources = [(source, source._version) for source in sources if source is not None]

    def _make(self) -> torch.Tensor:
        for source, version in self._sources:
            if source._version != version:
                raise changed(source, version)
        return self._recompute()

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        for source, _ in self._sources:
            yield source


class View(_Recipe):
    """A part of something: of `chunk`, `split`, a slice, or another shape of it."""

    __slots__ = ("_offset", "_whole")

    def __init__(self, tensor: torch.Tensor, base: torch.Tensor, whole: Keeping) -> None:
        super().__init__(tensor, whole.steps)
        self._whole, self._offset = whole, tensor.storage_offset() - base.storage_offset()

    def use(self) -> None:
        """Say that somebody more is going to ask for the whole."""
        self._whole.use()

    def made(self) -> torch.Tensor:
        """Compute the whole and return the part."""
        whole = self._whole.made()
        return whole.as_strided(self._shape, self._stride, whole.storage_offset() + self._offset)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        return self._whole.tensors()


class Derived(_Recipe):
    """The result of a function of other kept things.

    Args:
        tensor: The result; not kept.
        function: Takes the values of the parts.
        parts: What it is computed from.
    """

    __slots__ = ("_function", "_parts")

    def __init__(self, tensor: torch.Tensor, function: Callable[..., torch.Tensor], parts: Sequence[Keeping]) -> None:
        super().__init__(tensor, 1 + max(part.steps for part in parts))
        self._function, self._parts = function, parts

    def use(self) -> None:
        """Say that somebody more is going to ask for the result, which is computed once for all of them."""
        if not self._uses:
            for part in self._parts:
                part.use()
        super().use()

    def _make(self) -> torch.Tensor:
        return self._function(*[part.made() for part in self._parts])

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield what stays in memory."""
        for part in self._parts:
            yield from part.tensors()


def _when(value: torch.Tensor) -> tuple[int, int]:
    return value._version, current_stream(value.get_device()) if value.is_cuda else 0


def changed(tensor: torch.Tensor, version: int, why: str = _AGAIN) -> RuntimeError:
    """Return the error of torch for a tensor that was changed in place after it was kept."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} instead. "
        f"{why}"
    )
