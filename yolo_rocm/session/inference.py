"""Validation and prediction in a session: blocks as one, and networks in the layout and recording that are fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..engines.names import NATIVE, single_engines
from ..preset.schema import Settings
from ..ultralytics_hooks.inference_blocks import inference_blocks
from ..ultralytics_hooks.log import say
from ..ultralytics_hooks.network_calls import around_inference, inference_networks
from ..utils.switch import Switch
from .current_run import current
from .operators import Convolutions, Operator

if TYPE_CHECKING:  # these import torch, and a preset's variables come first
    from ..conv.inference import InferencePatch
    from ..conv.report import ConvReport  # noqa: F401 - in quotes below
    from ..graphs.inference import InferenceNetworks


class Inference(Operator["InferencePatch", "ConvReport"]):
    """One patch of blocks that only compute, kept with its plans and recorded networks from one run to the next.

    Args:
        settings: Of the session.
        convolutions: Of the session.
    """

    what: ClassVar[str] = "inference convolutions"

    def __init__(self, settings: Settings, convolutions: Convolutions) -> None:
        super().__init__(settings)
        self._convolutions = convolutions

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Compute the networks of runs by the preset while the context is open, as measured."""
        conv, wanted = self._settings.preset.conv, self._settings.preset.predict
        if wanted.fuse == Switch.OFF or set(single_engines(conv.engine)) <= set(NATIVE):
            yield
            return
        with super().patched():
            yield

    def close(self) -> None:
        """Let go of recorded networks and their memory."""
        if "_networks" in vars(self):
            self._networks.forget()

    @cached_property
    def _networks(self) -> InferenceNetworks:
        from ..graphs.inference import InferenceNetworks

        predict = self._settings.preset.predict
        log = partial(say, "predict.network")
        return InferenceNetworks(predict.graph, predict.layout, self.tune, log)

    def _scope(self) -> AbstractContextManager[None]:
        from ..conv.inference import computing

        # Of a run of this session: not between two items of a stream, nor in other threads, nor what others compute.
        here = current()
        is_ours = here is not None and here.session.inference is self
        return computing(self._patch) if is_ours and self._patch is not None else nullcontext()

    def _compute(self, model: Any, run: Callable[[Any], Any], x: Any) -> Any:
        from ..conv.inference import serving

        ours = self._patch is not None and serving(x.device.type) is self._patch
        here = current()
        trains = here is not None and here.open_trainings  # the weights change, so nothing is recorded
        return run(x) if trains or not ours else self._networks(model, run, x)

    @contextmanager
    def _installed(self, patch: InferencePatch) -> Iterator[None]:
        with inference_blocks(), around_inference(self._scope), inference_networks(self._compute):
            yield

    def _make(self) -> InferencePatch:
        from ..conv.inference import InferencePatch
        from ..conv.plan import InferencePlanner

        conv, advice = self._settings.preset.conv, self._convolutions.advice
        vendor, avoid = advice.vendor_library, self._convolutions.avoided
        planner = InferencePlanner(conv.engine, vendor, conv.memory_mb, avoid_vendor=avoid, for_training=False)
        return InferencePatch(conv.devices, planner)
