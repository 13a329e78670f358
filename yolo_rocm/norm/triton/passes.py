"""The passes of a Triton BatchNorm for one problem, with launches at hand: repeated calls are memory and launches.

What a launch is made of besides the problem (data types of parameters, what is tracked, momentum, which gradients are
wanted) is looked up once a call. On a fast GPU small layers take less time than Python needs for them: memory that is
returned is made like other memory, which is the quickest way, and what a pass needs for itself is kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import get_ident
from typing import Any, Final, NamedTuple

import torch

from ...engines.bounded import Bounded
from ...engines.device_state import STATE
from ...engines.devices import processors
from ...engines.names import Pass
from ...engines.triton.available import family
from ...engines.triton.call import Call
from ...engines.triton.direct import current_stream
from ...engines.triton.launch import Launch
from ..base import NormGrads, Parameters, Statistics, count_write
from ..problem import IDENTITY, NormProblem
from . import calls
from .tiles import Tile, tile

# A momentum that changes with every batch, as that of a cumulative average, is followed this often.
_MOST_REMEMBERED: Final = 32
_ALIGNED: Final = 64  # elements; kernels are compiled for addresses that are multiples of 16 bytes
_LEAST_SHARED: Final = 2**18  # elements
_Described = list[tuple[Call, tuple[torch.dtype, ...]]]
_known: dict[tuple[str, NormProblem], TritonPasses] = STATE.container(Bounded())
_shared: dict[tuple[torch.device, int, int], torch.Tensor] = STATE.container({})  # by device, stream and thread


def passes(size: str, problem: NormProblem) -> TritonPasses:
    """Return the passes of a problem with a size of tiles, made on first sight."""
    found = _known.get((size, problem))
    if found is None:
        found = _known[size, problem] = TritonPasses(size, problem)
    return found


def free_memory() -> None:
    """Let go of what passes keep for themselves; the next ones take it anew. Nobody may compute meanwhile."""
    for made in list(_known.values()):
        made.forget_rooms()
    _shared.clear()


def _memory(x: torch.Tensor, key: tuple[int, int], size: int) -> torch.Tensor:
    """Return memory that all passes of a thread on a stream share; whoever needs more gets it for all that follow."""
    place = (x.device, *key)
    known = _shared.get(place)
    if known is None or known.numel() < size:
        known = _shared[place] = x.new_empty(max(size, _LEAST_SHARED), dtype=torch.float32)
    return known


class _Room(NamedTuple):
    """What passes write to and read again, until the next one of the same thread on the same stream.

    Attributes:
        vector: Like the statistics of a batch.
        partial: For partial statistics.
        sums: For partial sums.
        coefficients: For what the gradient of the input is computed from.
    """

    vector: torch.Tensor
    partial: torch.Tensor
    sums: torch.Tensor
    coefficients: torch.Tensor


class TritonPasses:
    """Forward, activation and backward of one problem."""

    def __init__(self, size: str, problem: NormProblem) -> None:
        """Cut the problem into parts.

        Args:
            size: Of the tiles.
            problem: The problem.
        """
        self._problem, self._size = problem, size
        self._tile: Tile = tile(family(problem.device), size)
        self._parts = calls.cut(problem, self._tile, processors(problem.device))
        self.is_whole = self._parts.parts == 1  # one program for each channel, or block of channels
        self._training, self._affine = problem.training, problem.affine
        self._made: dict[Hashable, Any] = {}
        self._rooms: dict[tuple[int, int], _Room] = {}

    @property
    def partials(self) -> int:
        """Elements in fp32 of the partial results of a pass."""
        return 4 * self._parts.parts * self._problem.channels

    @property
    def values(self) -> int:
        """Values that a program adds up."""
        return self._parts.part_tiles * self._parts.block.a * self._parts.block.b

    def forward(self, x: torch.Tensor, p: Parameters) -> tuple[torch.Tensor, Statistics]:
        """Compute statistics and activation; update the running statistics in training."""
        weight, bias, running_mean, running_var, momentum, eps, batches = p
        room = self._room(x)
        mean, invstd = torch.empty_like(room.vector), torch.empty_like(room.vector)
        if weight is None or bias is None:
            weight = bias = mean
        track, count = running_mean is not None and running_var is not None, batches is not None
        if running_mean is None or running_var is None:
            running_mean = running_var = mean
        if batches is None:
            batches = mean
        else:
            count_write(batches)
        made, statistics = self._made, Statistics(mean, invstd)
        name: tuple[Any, ...] = (running_mean.dtype, running_var.dtype, eps)
        if not self._training:
            (made.get(name) or self._known_statistics(name))(running_mean, running_var, mean, invstd)
        elif self.is_whole:
            y = torch.empty_like(x)
            name = (*name, momentum, track, count, weight.dtype, bias.dtype)
            launch = made.get(name) or self._whole_forward(name)
            launch(x, running_mean, running_var, batches, weight, bias, mean, invstd, y)
            return y, statistics
        else:
            partial = room.partial
            name = (*name, momentum, track, count)
            first, second = made.get(name) or self._statistics(name)
            first(x, partial)
            second(partial, running_mean, running_var, batches, mean, invstd)
        y = torch.empty_like(x)
        name = ("activate", weight.dtype, bias.dtype)
        (made.get(name) or self._activate(name))(x, mean, invstd, weight, bias, y)
        return y, statistics

    def activate(self, x: torch.Tensor, p: Parameters, statistics: Statistics) -> torch.Tensor:
        """Compute the activation alone."""
        y = torch.empty_like(x)
        mean, invstd = statistics
        weight, bias = (mean, mean) if p.weight is None or p.bias is None else (p.weight, p.bias)
        name = ("activate", weight.dtype, bias.dtype)
        (self._made.get(name) or self._activate(name))(x, mean, invstd, weight, bias, y)
        return y

    def backward(
        self,
        grad: torch.Tensor,
        x: torch.Tensor,
        p: Parameters,
        statistics: Statistics,
        wanted: tuple[bool, bool, bool],
    ) -> NormGrads:
        """Compute the gradients that are wanted."""
        mean, invstd = statistics
        weight = mean if p.weight is None else p.weight
        bias = weight if p.bias is None else p.bias  # without an activation it may be left out
        for_input, for_weight, for_bias = wanted
        grad_weight = torch.empty_like(weight) if for_weight and self._affine else None
        grad_bias = torch.empty_like(bias) if for_bias and self._affine else None
        results = (weight if grad_weight is None else grad_weight, bias if grad_bias is None else grad_bias)
        read = (grad, x, mean, invstd, weight, bias)
        made, sums = self._made, grad_weight is not None or grad_bias is not None or (for_input and self._training)
        name: tuple[Any, ...] = (grad_weight is not None, grad_bias is not None, weight.dtype, bias.dtype)
        if self.is_whole and sums and for_input:
            grad_x = torch.empty_like(x)
            (made.get(name) or self._whole_backward(name))(*read, *results, grad_x)
            return NormGrads(grad_x, grad_weight, grad_bias)
        coefficients = mean
        if sums:
            _, _, partial, coefficients = self._room(x)
            name = ("sums", *name)
            first, second = made.get(name) or self._sums(name)
            first(*read, partial)
            second(partial, invstd, weight, *results, coefficients)
        if not for_input:
            return NormGrads(None, grad_weight, grad_bias)
        grad_x = torch.empty_like(x)
        name = ("gradient", weight.dtype, bias.dtype)
        (made.get(name) or self._input_gradient(name))(*read, coefficients, grad_x)
        return NormGrads(grad_x, grad_weight, grad_bias)

    def described(self, which: Pass) -> _Described:
        """Return the launches of a pass, with the data types of their tensors, as a training makes them most often."""
        problem, cut, affine = self._problem, self._parts, self._affine
        own, full = problem.dtype, torch.float32
        activate = (calls.activate(problem, self._tile), (own, *[full] * 4, own))
        gradient = (calls.input_gradient(problem, self._tile), (own, own, *[full] * 5, own))
        # A layer that is one with its activation counts its batches; torch.nn.BatchNorm2d does that itself.
        count = problem.activation != IDENTITY
        batches = torch.int64 if count else full
        settings = (0.1, 1e-5, True, count)
        if which == "backward":
            if self.is_whole:
                whole = calls.whole_backward(problem, cut, self._tile, affine, affine)
                return [(whole, (own, own, *[full] * 6, own))]
            sums = (calls.partial_gradients(problem, cut, self._tile), (own, own, *[full] * 5))
            return [sums, (calls.combine_gradients(problem, cut, affine, affine), (full,) * 6), gradient]
        if which != "forward":
            return [activate]
        if not problem.training:
            return [(calls.known_statistics(problem, 1e-5), (full,) * 4), activate]
        if self.is_whole:
            whole = calls.whole_forward(problem, cut, self._tile, *settings)
            return [(whole, (own, full, full, batches, *[full] * 4, own)), activate]
        partial = (calls.partial_statistics(problem, cut, self._tile), (own, full))
        combine = (calls.combine_statistics(problem, cut, *settings), (full, full, full, batches, full, full))
        return [partial, combine, activate]

    def forget_rooms(self) -> None:
        """Keep no memory between calls until the next one."""
        self._rooms.clear()

    def _room(self, x: torch.Tensor) -> _Room:
        number = x.get_device()
        key = (current_stream(number) if number >= 0 else -1, get_ident())
        return self._rooms.get(key) or self._new_room(x, key)

    def _new_room(self, x: torch.Tensor, key: tuple[int, int]) -> _Room:
        channels, partials = self._problem.channels, self.partials
        behind = -(-partials // 2 // _ALIGNED) * _ALIGNED  # where coefficients begin, behind partial sums
        with torch.inference_mode(False):
            vector = x.new_empty(channels, dtype=torch.float32)
            memory = _memory(x, key, max(partials, behind + 2 * channels))
            made = _Room(vector, memory[:partials], memory[: partials // 2], memory[behind : behind + 2 * channels])
        self._rooms[key] = made
        return made

    # Launches by a name that says what they are made of besides the problem; the above looks for them first.

    def _known_statistics(self, name: tuple[Any, ...]) -> Launch:
        return self._launch(name, calls.known_statistics(self._problem, name[2]))

    def _whole_forward(self, name: tuple[Any, ...]) -> Launch:
        eps, momentum, track, count = name[2:6]
        settings = (momentum, eps, track, count)
        return self._launch(name, calls.whole_forward(self._problem, self._parts, self._tile, *settings))

    def _whole_backward(self, name: tuple[Any, ...]) -> Launch:
        return self._launch(name, calls.whole_backward(self._problem, self._parts, self._tile, *name[:2]))

    def _statistics(self, name: tuple[Any, ...]) -> tuple[Launch, Launch]:
        eps, momentum, track, count = name[2:6]
        first = self._launch("partials", calls.partial_statistics(self._problem, self._parts, self._tile))
        combine = calls.combine_statistics(self._problem, self._parts, momentum, eps, track, count)
        return self._both(name, first, combine)

    def _sums(self, name: tuple[Any, ...]) -> tuple[Launch, Launch]:
        kinds = ("partial sums", *name[3:])
        first = self._launch(kinds, calls.partial_gradients(self._problem, self._parts, self._tile))
        return self._both(name, first, calls.combine_gradients(self._problem, self._parts, *name[1:3]))

    def _activate(self, name: tuple[Any, ...]) -> Launch:
        return self._launch(name, calls.activate(self._problem, self._tile))

    def _input_gradient(self, name: tuple[Any, ...]) -> Launch:
        return self._launch(name, calls.input_gradient(self._problem, self._tile))

    def _launch(self, name: Hashable, call: Call) -> Launch:
        """Return a launch by its name, made on first sight; it is forgotten where there are too many."""
        found: Launch | None = self._made.get(name)
        if found is None:
            room = len(self._made) < _MOST_REMEMBERED
            found = Launch((name, self._size, self._problem) if room else None, call)
            if room:
                self._made[name] = found
        return found

    def _both(self, name: tuple[Any, ...], first: Launch, second: Call) -> tuple[Launch, Launch]:
        """Return a launch and the one that combines its results; see `_launch`."""
        room = len(self._made) < _MOST_REMEMBERED
        both = first, Launch((name, self._size, self._problem) if room else None, second)
        if room:
            self._made[name] = both
        return both
