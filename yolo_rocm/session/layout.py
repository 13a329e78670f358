"""`step.layout: auto`: both layouts of a training's model measured after its first batch, the faster one kept.

The steps that are measured are those of copies of the model with the first batch: forward, loss and backward. Weights,
statistics, the optimizer and all generators of random numbers are as they were before. The result is kept on disk with
the plans of the algorithms, by model, batch, image size, precision, device and engines, so that a later run begins in
the faster layout.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import torch

from ..data.seeding import generators_kept
from ..engines.devices import on
from ..engines.plan_store import PlanStore
from ..errors import DeviceLostError
from ..preset.step import AUTO, CHANNELS_LAST, NCHW, layout_of
from ..ultralytics_hooks import layouts, train_steps
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.models import plain_model
from ..utils.error_text import first_line
from ..utils.switch import Switch
from .current_run import OngoingRun
from .listeners import Listener

_WARM_UP, _TIMED = 2, 5
# Losses of the two layouts on the same weights: fp16 departs by some 1e-3, a kernel that is wrong by far more.
_LARGEST_DEPARTURE: Final = 2e-2
# Whoever is faster by less is not faster: a change of layout has its own cost.
_CLEARLY: Final = 0.98
_SHOWN: Final = {NCHW: "NCHW", CHANNELS_LAST: "channels_last"}
Tune = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """What a step took in each layout, in milliseconds, and how far the losses were apart, relative to NCHW's."""

    nchw_ms: float
    channels_last_ms: float
    departure: float

    @property
    def reason(self) -> str:
        """Why one of them is taken."""
        if not self.departure <= _LARGEST_DEPARTURE:  # a NaN departs too
            return f"the loss in channels_last departed by {self.departure:.1e}"
        return f"a step took {self.nchw_ms:.1f} ms in NCHW, {self.channels_last_ms:.1f} ms in channels_last"

    def better(self, now: str) -> str:
        """Return the layout to train in, where it is `now` at present."""
        if not self.departure <= _LARGEST_DEPARTURE:
            return NCHW
        times = {NCHW: self.nchw_ms, CHANNELS_LAST: self.channels_last_ms}
        other = NCHW if now == CHANNELS_LAST else CHANNELS_LAST
        return other if times[other] < times[now] * _CLEARLY else now


def measure(
    module: torch.nn.Module, batch: dict[str, Any], autocast: dict[str, Any], device: torch.device, tune: Tune
) -> Times:
    """Return what a step of a model takes in both layouts. Neither the model nor the batch is changed.

    Args:
        module: The model, in training mode.
        batch: A batch on the device, as the model's loss takes it.
        autocast: Arguments of `torch.autocast`.
        device: Where.
        tune: Called after the first step of each layout, to choose algorithms for what it has seen.
    """

    def step(model: torch.nn.Module) -> float:
        with torch.autocast(**autocast):
            loss: torch.Tensor = train_steps.loss_of(model, dict(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        return float(loss.detach())  # waits for the device

    times: dict[str, list[float]] = {NCHW: [], CHANNELS_LAST: []}
    losses = {}
    on_gpu = [device] if device.type == "cuda" else []
    with generators_kept(), torch.random.fork_rng(devices=on_gpu), on(device):
        models = {layout: layouts.to_layout(copy.deepcopy(module), layout == CHANNELS_LAST) for layout in times}
        for layout, model in models.items():
            model.zero_grad(set_to_none=True)
            with generators_kept(), torch.random.fork_rng(devices=on_gpu):  # some losses draw: the same for both
                losses[layout] = step(model)
            tune()
        for number in range(_WARM_UP + _TIMED):
            for layout, model in models.items():  # in turns: a clock that changes hits both
                began = time.perf_counter()
                step(model)
                if number >= _WARM_UP:
                    times[layout].append((time.perf_counter() - began) * 1e3)
    departure = abs(losses[CHANNELS_LAST] - losses[NCHW]) / max(abs(losses[NCHW]), 1e-12)
    return Times(median(times[NCHW]), median(times[CHANNELS_LAST]), departure)


def measurable(device: torch.device) -> bool:
    """Return whether layouts are measured on a device; on a CPU it is NCHW, as Ultralytics has it."""
    return device.type == "cuda"


class Layout(Listener):
    """The layout of one training, where it is ours to decide.

    Args:
        run: The run.
        trainer: The trainer; nothing of it is held.
    """

    def __init__(self, run: OngoingRun, trainer: Any) -> None:
        self._session = run.session
        self._waits = ExitStack()
        self._batch: Callable[[], dict[str, Any] | None] | None = None
        self._wanted = layout_of(run.settings.preset) == AUTO and measurable(trainer.device)

    def set_up(self, trainer: Any) -> None:
        """Begin in the layout that was faster in an earlier run; otherwise keep the first batch, to measure with."""
        if not self._wanted or layouts.layout_is_given(trainer):
            return
        reason = layouts.why_layout_stays(trainer)
        if not reason and self._session.settings.preset.conv.tune == Switch.OFF:
            reason = "rocm.conv.tune=off"
        if reason:
            _say_kept(trainer, reason)
            return
        known = self._store(trainer).entries.get(self._key(trainer))
        if known is None:
            self._batch = self._waits.enter_context(layouts.first_batch_kept(trainer))
            return
        layouts.train_in_layout(trainer, known["layout"] == CHANNELS_LAST)
        say("layout.remembered", f"layout {_SHOWN[known['layout']]}: {known['reason']} in an earlier run")

    def decide(self, trainer: Any) -> bool:
        """Measure both layouts after the first batch and take the faster one; return whether that is another one."""
        batch = self._batch() if self._batch is not None else None
        self.close()
        if batch is None:
            return False
        reason = layouts.why_layout_stays(trainer)  # what the first batch has brought about may be one
        if reason:
            _say_kept(trainer, reason)
            return False
        try:
            with self._session.unreported() as tune:
                model, autocast = plain_model(trainer.model), layouts.autocast_of(trainer)
                times = measure(model, batch, autocast, trainer.device, tune)
        except DeviceLostError:
            raise
        except (RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:  # memory, a model of the user
            _say_kept(trainer, f"the two could not be measured: {first_line(error)}", warning=True)
            return False
        finally:
            del batch
            if trainer.device.type == "cuda":
                torch.cuda.empty_cache()
        now, store = _now(trainer), self._store(trainer)
        layout = times.better(now)
        store.add({self._key(trainer): {"layout": layout, "reason": times.reason}})
        kept = ", kept for later runs" if store.keeps else ""
        say("layout.measured", f"layout {_SHOWN[layout]}: {times.reason}{kept} (rocm.step.layout= sets it)")
        if layout != now:
            layouts.train_in_layout(trainer, layout == CHANNELS_LAST)
        return layout != now

    def close(self) -> None:
        """Let go of the first batch; safe to call twice."""
        self._batch = None
        self._waits.close()

    def _store(self, trainer: Any) -> PlanStore:
        return PlanStore(str(trainer.device), kind="layout")

    def _key(self, trainer: Any) -> str:
        """Name on disk what the times depend on."""
        model = plain_model(trainer.model)
        shapes = ";".join(f"{name}{tuple(each.shape)}" for name, each in model.named_parameters())
        digest = hashlib.sha256(f"{type(model).__name__} {shapes}".encode()).hexdigest()[:16]
        precision = str(layouts.autocast_of(trainer)["dtype"]).removeprefix("torch.") if trainer.amp else "float32"
        sizes = f"batch {trainer.batch_size} imgsz {trainer.args.imgsz} {precision}"
        preset, advice = self._session.settings.preset, self._session.convolutions.advice
        vendor, memory = f"vendor library {'on' if advice.vendor_library else 'off'}", f"{preset.conv.memory_mb} MB"
        return f"model {digest} {sizes} | {preset.conv.engine}, {vendor}, {memory} {preset.step.memory}"


def _say_kept(trainer: Any, reason: str, warning: bool = False) -> None:
    say("layout.kept", f"layout {_SHOWN[_now(trainer)]}, as it is: {reason}", warning=warning)


def _now(trainer: Any) -> str:
    return CHANNELS_LAST if layouts.is_channels_last(plain_model(trainer.model)) else NCHW
