"""`yolo-rocm bench conv`: every convolution of a model, pass by pass, next to its peers, in one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from ..conv.algorithms import BY_NAME
from ..conv.names import PASSES
from ..conv.patch import Patch
from ..conv.plan import CONVOLUTION, Operands, Planner
from ..conv.problem import ConvProblem
from ..conv.seam import installed
from ..engines.backend_flags import vendor_off
from ..engines.measure import as_in_the_seam, timed
from ..engines.names import Pass
from ..engines.plan_store import device_name
from ..engines.tuning import time_candidates
from . import results
from .layers import ModelLayer

VENDOR, VENDOR_OFF, PLAIN, AUTO = "vendor", "vendor off", "unfold + matmul", "auto"


@dataclass(frozen=True)
class Row:
    """Time of one way for one pass of one distinct convolution."""

    layer: str
    count: int
    problem: str
    pass_: str
    way: str
    milliseconds: float
    workspace_mb: float | None


def bench_conv(
    layers: Iterable[ModelLayer],
    planner: Planner,
    progress: Callable[[int, int], None],
    repeats: int = 7,
    quick: bool = False,
    vendor: bool = True,
) -> list[Row]:
    """Measure native kernels, vendor off, the plain unfold + matmul patch, each algorithm, and `auto`.

    `auto` is measured through the seam with the planner's own choices, after the planner has tuned itself.

    Args:
        layers: The convolutions.
        planner: Chooses for `auto`.
        progress: Called with (done, all).
        repeats: Timed calls of each way.
        quick: Measure native kernels and `auto` alone.
        vendor: Measure the vendor library; not where it would end the process.

    Returns:
        The rows of all layers; of those that were measured whole, where the user has ended it.

    Raises:
        KeyboardInterrupt: By the user, before a layer was measured.
    """
    layers = list(layers)
    rows: list[Row] = []
    patch = Patch(["cuda", "cpu"], planner)
    problems = [layer.problem for layer in layers]
    waiting = len(planner.unmeasured(problems)) if planner.tunable else 0
    everything = waiting + len(layers)
    search, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # the vendor library at its best
    try:
        progress(0, everything)
        if waiting:  # all together: compilers run in parallel
            planner.tune(problems, lambda done, _: progress(done, everything), limit_s=float("inf"))
        for done, layer in enumerate(layers, 1):
            rows += _bench_layer(layer, planner, patch, repeats, quick, vendor)
            progress(waiting + done, everything)
    except KeyboardInterrupt:
        if not rows:
            raise
    finally:
        torch.backends.cudnn.benchmark = search
    return rows


def _bench_layer(
    layer: ModelLayer, planner: Planner, patch: Patch, repeats: int, quick: bool, vendor: bool
) -> list[Row]:
    problem, rows = layer.problem, []
    operands = Operands.of(problem)
    device = torch.device(problem.device)
    ours = [] if quick else [a for a in planner.checked_candidates(problem) if a.name != "aten"]
    algorithms = [*([BY_NAME["vendor"]] if vendor else []), *ours]
    with as_in_the_seam():
        for which in () if quick else layer.passes:
            # A kernel or two for every sample: launches are what takes its time, in a training step too.
            with vendor_off(problem.device):
                spent = timed(_through_torch(problem, operands, which), device, repeats, head_start=False)[0]
                rows.append(_row(layer, which, VENDOR_OFF, spent, 0))
        for which in layer.passes:
            ways = dict.fromkeys(algorithms)
            for timing in time_candidates(CONVOLUTION, problem, which, ways, operands, planner.budget, thorough=True):
                workspace = min(BY_NAME[timing.algorithm].workspace_bytes(problem), planner.budget)
                rows.append(_row(layer, which, timing.algorithm, timing.milliseconds, workspace))
        with installed(patch):
            for which in layer.passes:
                spent = timed(_through_torch(problem, operands, which), device, repeats)[0]
                chosen = planner.plan(problem)[which].algorithm
                rows.append(_row(layer, which, AUTO, spent, min(chosen.workspace_bytes(problem), planner.budget)))
    return rows if quick else rows + _plain_patch(layer, operands, repeats)


def _through_torch(problem: ConvProblem, operands: Operands, which: Pass) -> Callable[[], object]:
    p = problem
    geometry = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    if which == "forward":
        return lambda: torch.ops.aten.convolution(operands.x, operands.weight, None, *geometry)
    mask = [which == Pass.GRAD_INPUT, which == Pass.GRAD_WEIGHT, False]
    return lambda: torch.ops.aten.convolution_backward(
        operands.grad, operands.x, operands.weight, None, *geometry, mask
    )


def _plain_patch(layer: ModelLayer, operands: Operands, repeats: int) -> list[Row]:
    """Measure the patch that circulates for broken MIOpen: F.unfold, one matmul, a Python loop over groups."""
    problem = layer.problem
    if problem.transposed or len(problem.kernel) != 2:
        return []
    x = operands.x.detach().requires_grad_(layer.needs_grad_input)
    weight = operands.weight.detach().requires_grad_()
    group = problem.out_channels // problem.groups

    def forward() -> torch.Tensor:
        parts = []
        for number, part in enumerate(x.chunk(problem.groups, 1)):
            columns = F.unfold(part, problem.kernel, problem.dilation, problem.padding, problem.stride)
            matrix = weight[number * group : (number + 1) * group].flatten(1)
            parts.append((matrix @ columns).view(problem.batch, group, *problem.output_size))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    leaves = [leaf for leaf in (x, weight) if leaf.requires_grad]
    try:
        first = timed(forward, x.device, repeats)[0]
        y = forward()
        backward = partial(torch.autograd.grad, y, leaves, operands.grad, retain_graph=True)
        second = timed(backward, x.device, repeats)[0]
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return []
    kept = problem.batch * problem.in_channels * problem.kernel[0] * problem.kernel[1] * problem.output_size[0]
    columns = kept * problem.output_size[1] * x.element_size()
    return [_row(layer, Pass.FORWARD, PLAIN, first, columns), _row(layer, Pass.BACKWARD, PLAIN, second, columns)]


def _row(layer: ModelLayer, which: Pass, way: str, milliseconds: float, workspace: int) -> Row:
    return Row(layer.names[0], len(layer.names), str(layer.problem), which, way, milliseconds, workspace / 2**20)


def totals(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Return milliseconds by way and pass, each layer counted as often as the model has it.

    Ways that do not support every layer have no total; the fastest of the single algorithms is what `auto` is about.
    """
    result: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    whole = {VENDOR, VENDOR_OFF, PLAIN, AUTO}
    for row in rows:
        if row.way in whole:
            result[row.way][row.pass_] += row.milliseconds * row.count
            result[row.way]["sum"] += row.milliseconds * row.count
    return {way: dict(passes) for way, passes in result.items()}


def largest_workspaces(rows: Iterable[Row]) -> dict[str, float]:
    """Return the largest workspace of each way in MiB; that of native kernels is not known."""
    result: dict[str, float] = {}
    for row in rows:
        if row.way not in (VENDOR, VENDOR_OFF) and row.workspace_mb is not None:
            result[row.way] = max(result.get(row.way, 0.0), row.workspace_mb)
    return result


def write_csv(path: Path, rows: Iterable[Row], device: str, command: str) -> None:
    """Write every measurement with what it was measured on."""
    entries = [{key.rstrip("_"): value for key, value in asdict(row).items()} for row in rows]
    results.write_csv(path, entries, results.stamp(command, device=device_name(device), torch=torch.__version__))


def plot(path: Path, rows: Iterable[Row], title: str, of: str = "all convolutions") -> None:
    """Draw the totals of some convolutions as stacked bars, one bar for each way."""
    sums = totals(rows)
    ways = [way for way in (VENDOR, AUTO, PLAIN, VENDOR_OFF) if way in sums]
    parts = [which for which in (*PASSES, Pass.BACKWARD) if any(which in sums[way] for way in ways)]
    series: dict[str, list[float]] = {which: [sums[way].get(which, 0.0) for way in ways] for which in parts}
    results.draw(path, title, ways, [results.Panel(f"milliseconds, {of} of one training step", 1, series)])
