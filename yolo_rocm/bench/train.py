"""`yolo-rocm bench train`: a whole training step of a detector, one way next to the other, in one run.

A step is forward, loss, backward, clipping and SGD, as the trainer does it, without its loader and its EMA. Every way
takes its turn, then every way again, so that a clock that changes hits all. Each turn begins with the same weights and
the same batch in an empty cache of memory, and nothing of another way is alive: its peak is its own. What is compiled
takes one turn with all its steps, after all others, as compiling takes longer than these. After the timed
steps of its first turn, a way takes some more under torch's profiler, which show where the device's time goes.
"""

from __future__ import annotations

import copy
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any, Final

import torch

from ..conv.plan import DEFAULT_TUNE_SECONDS
from ..conv.step_timer import StepTimer
from ..engines.devices import on
from ..engines.precision import without_tf32
from ..errors import DeviceLostError
from ..graphs import network
from ..ultralytics_hooks import train_steps
from ..utils.error_text import first_line
from ..utils.switch import Switch
from . import busy
from .checks import LEAST_OF_A_STEP, check, loaded
from .faster import FEWEST_ROUNDS, settle_layout
from .peak import Peak, peak_of
from .trainee import SEED, Trainee
from .way import OFF, Way
from .ways import INTERRUPTED, why_not

WARM_UP: Final = 3  # untimed steps of each turn: memory is taken, momentum is there, the vendor library has searched
# Whoever asks for more steps gets more rounds, not longer turns: the pace of a host changes within seconds.
_STEPS_OF_A_TURN: Final = 5
_SLOW_MS: Final = 250.0  # of a step that is profiled once, as where kernels are launched for each image by itself


class TrainBench:
    """A detector, a batch and the steps to take.

    Args:
        model: Weights or model YAML of a detector.
        batch: Images.
        imgsz: Image size.
        amp: Whether autocast and GradScaler are on: fp16 on a GPU; on a CPU bf16, which needs no scaling.
        device: Where.
        steps: Timed steps of each way, in all its turns.
        tune_s: Seconds that measuring candidates may take for all ways with the same engines and layout; None is what a
            training takes, which is nothing on a CPU.
        profiled: Whether each way takes some more steps under the profiler.
    """

    def __init__(
        self,
        model: str,
        batch: int,
        imgsz: int,
        amp: bool,
        device: str,
        steps: int,
        tune_s: float | None = None,
        profiled: bool = False,
    ) -> None:
        given = {"batch": batch, "imgsz": imgsz, "amp": amp, "steps": steps, "tune_s": tune_s}
        check(given, optional=("tune_s",), imgsz=LEAST_OF_A_STEP)
        self.amp, self.device, self._profiled = amp, torch.device(device), profiled
        self._tune_s = (DEFAULT_TUNE_SECONDS if self.device.type == "cuda" else 0.0) if tune_s is None else tune_s
        # Seconds that each planner has measured, by layout.
        self._spent: weakref.WeakKeyDictionary[Any, dict[bool | None, float]] = weakref.WeakKeyDictionary()
        self.held_mb = 0.0  # most that was still allocated on a GPU when a turn began
        self.interrupted = False
        self.rounds = min(steps, max(FEWEST_ROUNDS, steps // _STEPS_OF_A_TURN))
        self.steps = -(-steps // self.rounds)  # of a turn
        generator = torch.Generator().manual_seed(SEED)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            self._module = loaded(train_steps.detector, model, imgsz)
        self._batch = train_steps.made_batch(self._module, batch, imgsz, generator)

    def run(self, compared: list[Way], progress: Callable[[int, int, str], None]) -> None:
        """Fill in what every way shows. One that fails stays out of later rounds and keeps its error.

        Args:
            compared: The ways.
            progress: Called with (turns done, all turns, what comes next); never while something is timed.

        Raises:
            KeyboardInterrupt: By the user, before anything was measured; later it only ends the comparison.
        """
        compiled = [way for way in compared if way.compiled]
        others = [way for way in compared if not way.compiled]
        # Nobody is always the first after a pause.
        firsts = [number % max(len(others), 1) for number in range(self.rounds)]
        turns = [way for first in firsts for way in others[first:] + others[:first]] + compiled
        search, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # the vendor library at its best
        try:
            with on(self.device), without_tf32():
                for done, way in enumerate(turns):
                    settle_layout(way, compared)
                    progress(done, len(turns), way.name)
                    self._take_turn(way)
        except KeyboardInterrupt:
            missing = [way for way in compared if not way.turns_ms]
            if len(missing) == len(compared):
                raise
            self.interrupted = True
            for way in missing:
                way.error = way.error or INTERRUPTED
        finally:
            torch.backends.cudnn.benchmark = search

    def peak_of(self, way: Way, steps: int) -> Peak:
        """Return the most memory of some steps of a way on a GPU, from the first on; nothing is tuned or timed.

        Raises:
            RuntimeError: As torch raises it, where memory does not suffice.
        """
        with on(self.device), without_tf32(), way.applied(self.device.type):
            torch.cuda.reset_peak_memory_stats(self.device)
            with self._trainee(way) as trainee:
                for _ in range(steps):
                    trainee.step()
                self._synchronize()
            return peak_of(self.device)

    def _take_turn(self, way: Way) -> None:
        way.error = way.error or why_not(way, self.device.type)
        if way.error:
            return
        try:
            with way.applied(self.device.type):
                if way.is_ours and way.tuning_s is None and not way.compiled:
                    self._tune(way)
                self._measure(way)
        except DeviceLostError:  # nobody else can be measured on it
            raise
        except RuntimeError as error:  # out of memory, a sick vendor library, an engine that cannot compute a layer
            way.error = first_line(error)

    def _tune(self, way: Way) -> None:
        """Let the planners measure, as a training does after its first batch."""
        started = time.perf_counter()
        with self._trainee(way) as trainee, ExitStack() as naming:
            for patch in way.patches:
                naming.enter_context(patch.report.naming(trainee.module))
            trainee.step()
        self._clear()
        self._choose(way)
        way.tuning_s = time.perf_counter() - started

    def _choose(self, way: Way) -> None:
        """Measure candidates for what a way has computed, and take the fastest from now on."""
        for patch in way.patches:
            planner = patch.planner
            spent = self._spent.setdefault(planner, {})
            # Where time was over before all was measured, ways that share a planner go on with what is known.
            left = self._tune_s - spent.get(way.channels_last, 0.0)
            if planner.tunable and left > 0:
                started = time.perf_counter()
                planner.tune(patch.report.served, limit_s=left)
                spent[way.channels_last] = self._tune_s - left + time.perf_counter() - started
                patch.report.replan(planner.plan)
        self._synchronize()

    def _measure(self, way: Way) -> None:
        started = time.perf_counter()
        with self._trainee(way) as trainee:
            losses = [trainee.step() for _ in range(WARM_UP)]
            self._synchronize()
            if way.is_ours and way.tuning_s is None:  # compiled: that takes minutes, and its calls go where plans say
                self._choose(way)
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                trainee.begin_again(self._module)  # with what was chosen: losses are compared from the first step on
                losses = [trainee.step() for _ in range(WARM_UP)]
                self._synchronize()
                way.tuning_s = time.perf_counter() - started
            if way.graph == "on" and not trainee.is_recorded:
                raise RuntimeError(way.said[-1] if way.said else "nothing was recorded")
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)
            timers = []
            for number in range(self.steps * (self.rounds if way.compiled else 1)):
                timer = StepTimer(number, self.device)
                losses.append(trainee.step())
                timer.end()
                timers.append(timer)
            self._synchronize()
            if self.device.type == "cuda":
                way.peaks.append(peak_of(self.device))
            way.losses = [float(loss) for loss in losses]
            way.overflows = trainee.overflows()
            way.turns_ms.append([timer.step_ms() for timer in timers])  # at last: a way with turns has all of the above
            if self._profiled and way.busy is None:
                way.busy = busy.measure(partial(trainee.step, ranges=True), self.device, self._steps_profiled(way))

    @contextmanager
    def _trainee(self, way: Way) -> Iterator[Trainee]:
        """Yield a model with the first weights, alone on the device."""
        self._clear()
        on_gpu = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        anew = train_steps.compiled_anew() if way.compiled else nullcontext()
        with torch.random.fork_rng(devices=on_gpu), anew:
            torch.manual_seed(SEED)  # some losses draw
            layout = torch.channels_last if way.channels_last else torch.contiguous_format
            module = copy.deepcopy(self._module).to(self.device).to(memory_format=layout)
            batch = {key: value.to(self.device) for key, value in self._batch.items()}
            batch["img"] = batch["img"].contiguous(memory_format=layout)
            trainee = Trainee(module, batch, self.amp, self.device, way)
            if way.graph != OFF:
                network.NetworkGraphs(module, Switch(way.graph), way.said.append)
            del module, batch
            try:
                yield trainee
            finally:
                trainee.let_go()

    def _clear(self) -> None:
        """Free what others have left on a GPU, down to the workspaces of matrix products."""
        if self.device.type == "cuda":
            gc.collect()
            self._synchronize()
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            torch.cuda.empty_cache()
            self.held_mb = max(self.held_mb, torch.cuda.memory_allocated(self.device) / 2**20)

    def _steps_profiled(self, way: Way) -> int:
        """Return how many steps to take under the profiler, whose events take longer to read than steps to run."""
        return 2 if self.device.type == "cuda" and median(way.turns_ms[0]) < _SLOW_MS else 1

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
