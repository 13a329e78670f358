"""The ways to compute a training step that `bench train` and `bench memory` compare, and what each of them switches on.

A way is a list of pieces, context managers that change how the process computes. `ours` is made of what a session under
the preset `generic` switches on.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from ..conv.patch import Patch
from ..conv.plan import Planner
from ..conv.seam import installed
from ..engines.backend_flags import vendor_off
from ..engines.names import single_engines
from ..engines.planner import BasePlanner
from ..errors import ConfigError, nearest
from ..graphs import recorder
from ..norm import seam as norm_seam
from ..norm.patch import NormPatch
from ..norm.plan import NormPlanner
from ..preset.resolve import resolve
from ..preset.step import LEAN
from ..ultralytics_hooks import anchors, probes, train_steps
from ..ultralytics_hooks.fused_blocks import fused_blocks
from ..ultralytics_hooks.fused_losses import fused_losses
from ..ultralytics_hooks.network_calls import graphed_networks, lean_networks
from ..utils.off_switch import enabled
from .checks import check
from .way import OFF, GraphMode, Piece, Way

PRESET: Final = "generic"  # what `ours` runs as
STOCK_KIND, OFF_KIND, OURS_KIND, LEAN_KIND = "stock", "vendor off", "ours", "ours lean"
COMPILE: Final = " + compile"
GRAPH: Final = " + graph"
AUTO_KIND: Final = "ours auto + vendor"
_QUICK: Final = {(STOCK_KIND, False), (STOCK_KIND, True), (OFF_KIND, False), (OURS_KIND, False), (OURS_KIND, True)}
_QUICK_FOLLOWERS: Final = (LEAN_KIND,)
NOT_RUNNABLE: Final = "not runnable here: "
INTERRUPTED: Final = "interrupted before it was measured"


class _Ours:
    """Makes ways of ours as the preset has them.

    Those with the same engines have the same planners, as trainings have that remember their plans: what was measured
    for one way is not measured again for another, and lean memory is compared with the very kernels of full memory.

    Args:
        engine: Engines; None for the preset's.
        memory_mb: Workspace a pass may take; None for the preset's.
        remember: Whether plans of earlier runs are used.
        on_gpu: Whether the preset chooses the layout; on a CPU a session stays in NCHW (`session.layout.measurable`).
    """

    def __init__(self, engine: str | None, memory_mb: int | None, remember: bool, on_gpu: bool) -> None:
        self.preset = resolve(PRESET).preset
        conv = self.preset.conv
        self.engine = engine or conv.engine
        self._memory_mb = memory_mb or conv.memory_mb
        self._remember, self._on_gpu = remember, on_gpu
        self._planners: dict[tuple[Any, ...], BasePlanner[Any, Any]] = {}

    def _planner(self, operator: type[BasePlanner[Any, Any]], engine: str, vendor: bool) -> Any:
        planner = operator(engine, vendor, self._memory_mb, self._remember)
        return self._planners.setdefault((operator, planner.engines), planner)

    def way(
        self,
        kind: str,
        channels_last: bool | None,
        vendor: bool = False,
        lean: bool = False,
        compiled: bool = False,
        graph: GraphMode = OFF,
    ) -> Way:
        """Return one of them.

        Args:
            kind: Its name.
            channels_last: Its layout; None follows the faster one of ours, or on a CPU that of sessions.
            vendor: Leave the vendor library on: one candidate among all engines.
            lean: Activations are computed again in backward.
            compiled: By Ultralytics' own compile mode.
            graph: Device graphs of the network.
        """
        engine = "auto" if vendor else self.engine
        if channels_last is None and not self._on_gpu:
            channels_last = False
        patch = Patch(["cuda", "cpu"], self._planner(Planner, engine, vendor))
        norm_patch = NormPatch(["cuda", "cpu"], self._planner(NormPlanner, engine, vendor))
        pieces: list[Piece] = [] if vendor else [vendor_off]
        pieces += [lambda device: installed(patch), lambda device: anchors.anchors_once()]
        if "triton" in single_engines(engine):
            pieces.append(lambda device: fused_losses())
        pieces += [lambda device: norm_seam.installed(norm_patch), lambda device: fused_blocks()]
        if lean:
            pieces.append(lambda device: lean_networks())
        if graph != OFF:
            pieces.append(lambda device: graphed_networks())
        follows = OURS_KIND if channels_last is None else ""
        way = Way(kind, channels_last, pieces, (patch, norm_patch), compiled, graph, follows)
        preset_kind = LEAN_KIND if self.preset.step.memory == LEAN else OURS_KIND
        way.of_preset = kind == preset_kind and (self._on_gpu or not channels_last)
        return way


def _torch_alone(kind: str, channels_last: bool | None, compiled: bool = False) -> Way:
    pieces = [vendor_off] if kind == OFF_KIND else []
    name = f"{kind}{COMPILE}" if compiled else kind
    return Way(name, channels_last, pieces, compiled=compiled, follows=kind if channels_last is None else "")


def ways(
    engine: str | None = None,
    memory_mb: int | None = None,
    quick: bool = False,
    chosen: str | None = None,
    remember: bool = False,
    on_gpu: bool = True,
) -> list[Way]:
    """Return every way that is compared.

    Args:
        engine: Engines of ours; the preset's by default.
        memory_mb: Workspace a pass of ours may take; the preset's by default.
        quick: Leave out what takes longest: whatever is compiled or recorded, vendor off in channels_last, and ours
            beside a vendor library that works.
        chosen: Kinds, joined by commas, such as `stock,ours,ours lean`; all by default.
        remember: Whether ours begins with what earlier runs have measured.
        on_gpu: Whether what is compiled or recorded is among them where nothing is chosen: for a CPU, compiling takes
            minutes, and it has no device graphs. On a CPU the preset runs NCHW.

    Raises:
        ConfigError: The package is turned off, there is no way of that kind, or a value means nothing.
    """
    if not enabled():
        raise ConfigError("YOLO_ROCM=0 turns the whole package off: there is nothing to compare. Unset it.")
    check({"memory_mb": memory_mb}, optional=("memory_mb",))
    ours = _Ours(None if engine is None else str(engine), memory_mb, remember, on_gpu)
    found = [
        *(_torch_alone(STOCK_KIND, layout) for layout in (False, True)),
        _torch_alone(STOCK_KIND, None, compiled=True),
        *(_torch_alone(OFF_KIND, layout) for layout in (False, True)),
        _torch_alone(OFF_KIND, None, compiled=True),
        *(ours.way(OURS_KIND, layout) for layout in (False, True)),
        ours.way(LEAN_KIND, None, lean=True),
        ours.way(OURS_KIND + GRAPH, None, graph="on"),
        ours.way(LEAN_KIND + GRAPH, None, lean=True, graph="on"),
        ours.way(f"{OURS_KIND}{COMPILE}", None, compiled=True),
        ours.way(AUTO_KIND, None, vendor=True),
    ]
    if quick and not chosen:
        return [way for way in found if (way.kind, way.channels_last) in _QUICK or way.kind in _QUICK_FOLLOWERS]
    return _picked([way for way in found if on_gpu or chosen or not (way.compiled or way.graph != OFF)], chosen)


def _picked(found: list[Way], chosen: str | None) -> list[Way]:
    if not chosen:
        return found
    wanted = [word.strip() for word in str(chosen).split(",")]
    kinds = list(dict.fromkeys(way.kind for way in found))
    for word in wanted:
        if word not in kinds:
            raise ConfigError(f"no way {word!r}{nearest(word, kinds)} Allowed: {', '.join(kinds)}.")
    return [way for way in found if way.kind in wanted]


def why_not(way: Way, device: str) -> str:
    """Return why a way cannot run here; nothing where it can."""
    reason = train_steps.why_not_compiled(device) if way.compiled else ""
    if way.graph != OFF:
        reason = recorder.why_not(torch.device(device)) or "; ".join(probes.missing(probes.GRAPHED_NETWORKS))
    return f"{NOT_RUNNABLE}{reason}" if reason else ""
