"""What is on, for how long: one preset applied to a training, a YOLO object, or every YOLO object of the process."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import YoloRocmError
from ..hardware import detect
from ..preset import variables
from ..preset.cfg_file import keys_of, read
from ..preset.resolve import resolve
from ..preset.schema import Settings
from ..utils.off_switch import enabled
from . import sigterm
from .events import TrainingEvents
from .handoff import arrive, describe
from .run_command import RunCommand, run_command
from .run_mark import a_run

if TYPE_CHECKING:
    from ..conv.patch import Patch
    from ..conv.report import ConvReport
    from ..data.policy import LoaderPolicy
    from ..diagnosis.vendor_health import Advice
    from .training import TrainingRun


class Session(TrainingEvents):
    """A resolved preset and the switches it needs. Nothing is changed until `active` is entered.

    Instances hold plain data apart from what `active` keeps, so that Ultralytics may pickle their callbacks.
    """

    def __init__(
        self, preset: str | Path | Mapping[str, Any] | None, rocm: Mapping[str, Any] | None, **arguments: Any
    ) -> None:
        self.source, self.rocm = preset, rocm
        self.machine = detect()
        self.settings: Settings = resolve(preset, rocm, arguments, machine=self.machine)
        self.device = arguments.get("device")
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._depths: Counter[int] = Counter()  # by thread
        self._announced = False
        self._switches = ExitStack()
        self._thread_switches: dict[int, ExitStack] = {}
        self._runs: weakref.WeakKeyDictionary[Any, TrainingRun] = weakref.WeakKeyDictionary()
        self._patch: Patch | None = None
        self.given_workers: int | None = None
        self._advice: Advice | None = None
        # A run's arguments are laid over the preset's where a call is wrapped; callbacks on their own do it later.
        self.lays_arguments = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: getattr(self, name) for name in ("source", "rocm", "machine", "settings", "device")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start inactive."""
        self.__dict__.update(state)
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the ranks of a distributed training, where all sessions are one."""
        return arrive, (self.__getstate__(),)

    @contextmanager
    def environment(self) -> Iterator[list[str]]:
        """Set the preset's environment variables that apply here, where that is still in time.

        Yields:
            One line for each variable that came too late, or that the user has set to something else.

        Raises:
            StackError: A variable came too late without which the card cannot train.
        """
        decisions = self.variables()
        on_gpu = str(self.device or "").lower() not in ("cpu", "mps")
        with variables.applied(decisions, system=self.machine.system, needs_gpu=on_gpu) as late:
            yield [*late, *(decision.said for decision in decisions if decision.said)]

    def set_early(self) -> ExitStack:
        """Set the variables that must be there before HIP starts, until the returned stack is closed.

        Between registering an object and training it anything may start HIP. What comes too late already is told, or
        ends the run, when the run begins: only then it is known whether it is for the GPU.
        """
        held = ExitStack()
        held.enter_context(variables.applied(variables.early(self.variables()), needs_gpu=False))
        return held

    def variables(self) -> list[variables.Decision]:
        """Return what becomes of each environment variable; nothing is changed."""
        return variables.plan(self.settings.preset, self.machine, self.device) if enabled() else []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply the preset: environment, vendor library, convolutions, loaders. Nested use counts.

        Environment and vendor library are the whole process's. Loaders are those of this thread; convolutions too,
        where another thread runs under a preset of its own.
        """
        thread = threading.get_ident()  # an old trainer may be let go by another one
        with self._lock:
            if thread not in self._depths and enabled():
                with ExitStack() as of_process, ExitStack() as of_thread:
                    first = not self._thread_switches
                    if first:
                        self._switch_on(of_process)
                    self._switch_thread_on(of_thread)
                    if first:
                        self._switches = of_process.pop_all()
                    self._thread_switches[thread] = of_thread.pop_all()
            self._depths[thread] += 1
        try:
            yield
        finally:
            with self._lock, ExitStack() as undo:
                self._depths[thread] -= 1
                if not self._depths[thread]:
                    del self._depths[thread]
                    of_thread = self._thread_switches.pop(thread, ExitStack())
                    if not self._thread_switches:
                        undo.push(self._switches.pop_all())
                    undo.push(of_thread)

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were served by; None before the first."""
        return None if self._patch is None else self._patch.report

    def begin_run(self) -> None:
        """Start a new report, unless a run is going on; plans are kept."""
        with self._lock:
            if not self._depths and self._patch is not None:
                self._patch = self._patch.renewed()

    def hear(self, arguments: Mapping[str, Any]) -> None:
        """Begin a run with the arguments of its call that the session needs to know; one inside another inherits."""
        device, workers = (self.device, self.given_workers) if self.is_active else (None, None)
        self.device, self.given_workers = arguments.get("device", device), arguments.get("workers", workers)
        self.begin_run()

    def tune(self) -> None:
        """Measure the algorithms for every convolution seen so far; later runs on this device know the result."""
        wanted = self.settings.preset.conv.tune
        if self._patch is None or wanted == "off" or not self._patch.planner.tunable:
            return
        from .. import ultralytics_hooks as hooks
        from ..conv.plan import DEFAULT_TUNE_SECONDS

        problems = [p for p in self._patch.report.served if wanted == "on" or p.device.startswith("cuda")]
        with hooks.progress("measuring convolutions", DEFAULT_TUNE_SECONDS) as progress:
            timings = self._patch.planner.tune(problems, progress)
        if timings:
            hooks.say(f"measured {len(timings)} convolutions, kept for later runs")
            self._patch.report.replan(self._patch.planner.plan)

    @property
    def is_active(self) -> bool:
        """Tell whether the preset is applied now, for this thread."""
        return threading.get_ident() in self._depths

    def _switch_on(self, switches: ExitStack) -> None:
        preset = self.settings.preset
        # The environment comes first: importing torch may be the moment at which it is read.
        late = switches.enter_context(self.environment())
        import torch

        from .. import ultralytics_hooks as hooks
        from ..conv.backend_flags import vendor_off
        from ..conv.patch import Patch
        from ..conv.plan import Planner
        from ..diagnosis.probes import TORCH_NAMES

        hooks.require()
        if not self._announced:  # once, not for every image of a stream
            self._announced = True
            for line in late:
                hooks.say(line, warning=True)
            for line in (*self._opening_lines(), *self._learned().lines):
                hooks.say(line)
        learned = self._learned()
        if not learned.vendor:
            for device in preset.conv.devices:
                switches.enter_context(vendor_off(device))
        switches.enter_context(hooks.whole_runs())
        switches.enter_context(hooks.memory_errors_recognised())
        switches.enter_context(hooks.amp_check_without_wait())
        switches.enter_context(hooks.ranks_join(self.take_over))
        if self._patch is None:
            conv = preset.conv
            avoid = [getattr(torch, TORCH_NAMES[dtype]) for dtype in learned.conv_avoids]
            self._patch = Patch(conv.devices, Planner(conv.engine, learned.vendor, conv.memory_mb, avoid_vendor=avoid))

    def _switch_thread_on(self, switches: ExitStack) -> None:
        from .. import ultralytics_hooks as hooks
        from ..conv.seam import installed

        assert self._patch is not None  # the process is switched on first
        switches.enter_context(hooks.loaders_follow(self.loader_policy()))
        switches.enter_context(installed(self._patch))

    @property
    def device_augment(self) -> bool:
        """Whether augmentations are left to the device: wanted, and possible with the installed Ultralytics."""
        return self.settings.preset.loader.device_augment and not _no_device_augment()

    def loader_policy(self) -> LoaderPolicy:
        """Return what the preset says about loaders, as the loaders take it."""
        from .. import ultralytics_hooks as hooks
        from ..data.policy import LoaderPolicy
        from ..ultralytics_hooks.datasets import MODULES, UltralyticsAdapter

        loader = self.settings.preset.loader
        given = self.given_workers
        return LoaderPolicy(
            context=loader.context,
            workers=loader.workers if given is None else given,
            persistent=loader.persistent,
            pin_memory=loader.pin_memory,
            prefetch=loader.prefetch,
            timeout=loader.timeout,
            reproducible=loader.reproducible,
            skip_broken=loader.skip_broken,
            device=self._prefetch_device,
            adapter=UltralyticsAdapter(self.device_augment, loader.reduced_decode, loader.mosaic_mb),
            modules=MODULES,
            val_is_doubled=lambda: bool(self._runs),
            insist=given is not None or "loader.workers" in self.settings.explicit,
            tell=functools.partial(hooks.say, warning=True),
            observe=self._observe,
        )

    def _prefetch_device(self) -> Any:
        """Return the device that training batches are copied to ahead of time, or None."""
        for run in list(self._runs.values()):
            return run.prefetch_device(self.settings.preset.loader.device_prefetch)
        return None

    def _learned(self) -> Advice:
        """Return what the doctor's probes of this GPU and stack mean for the run."""
        if self._advice is None:
            from ..diagnosis.vendor_health import advise, memory_file, recall

            conv = self.settings.preset.conv
            explicit = "conv.vendor" in self.settings.explicit
            self._advice = advise(conv, recall(memory_file(self.machine, conv.devices[0])), explicit)
        return self._advice

    def _opening_lines(self) -> Iterator[str]:
        import torch

        preset = self.settings.preset
        conv = preset.conv
        yield (
            f"{self.settings.why}; conv {conv.engine} on {'+'.join(conv.devices)}, vendor library {conv.vendor}, "
            f"evidence: {preset.evidence} (YOLO_ROCM=0 turns this off)"
        )
        yield from self.settings.notes
        if "cuda" in conv.devices and not torch.cuda.is_available():
            yield f"preset {preset.name} is for a GPU and torch finds none: its GPU settings are ignored"
        yield from self._left_off()

    def _left_off(self) -> Iterator[str]:
        """Say what the preset asks for and the installed Ultralytics has no place for."""
        from .. import ultralytics_hooks as hooks

        loader = self.settings.preset.loader
        for feature, wanted, why in (
            (hooks.DEVICE_AUGMENT, loader.device_augment, _no_device_augment()),
            (hooks.REDUCED_DECODE, loader.reduced_decode, hooks.missing(hooks.REDUCED_DECODE)),
            (hooks.DAMAGED_IMAGES, loader.skip_broken, hooks.missing(hooks.DAMAGED_IMAGES)),
        ):
            if wanted and why:
                yield f"{feature} is left off with this Ultralytics: {why[0]}"

    def train_section(self, device: Any) -> dict[str, Any]:
        """Return the preset's Ultralytics arguments; its batch is for one GPU, Ultralytics' is for all together.

        Args:
            device: Ultralytics' `device` argument of the run.
        """
        from .. import ultralytics_hooks as hooks

        section = dict(self.settings.preset.train)
        batch = section.get("batch")
        if isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:  # -1 and a fraction are searched for
            section["batch"] = batch * hooks.ranks_asked(device)
        return section

    def train_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Lay the preset's Ultralytics arguments under those of a call. A resumed run keeps the ones it began with."""
        from .. import ultralytics_hooks as hooks

        if arguments.get("resume"):
            return dict(arguments)
        of_file = keys_of(arguments.get("cfg"))
        taken = set(arguments) | set(of_file)
        device = read(Path(arguments["cfg"])).get("device") if "device" in of_file else None
        wanted = self.train_section(arguments.get("device", device))
        added = {k: v for k, v in wanted.items() if k not in taken}
        if "batch" in added and added["batch"] != self.settings.preset.train["batch"]:
            hooks.say(f"batch={added['batch']}: {self.settings.preset.train['batch']} of the preset for each GPU")
        unknown = [name for name in added if not hooks.knows_argument(name)]
        if unknown:
            hooks.say(f"this Ultralytics has no argument {', '.join(unknown)}: left out")
        return {**{k: v for k, v in added.items() if k not in unknown}, **arguments}

    def run_mode(self, yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one mode of a YOLO object under the preset; a stream stays under it while it computes, not between."""
        from .. import ultralytics_hooks as hooks

        if not enabled():
            return method(*args, **kwargs)
        outer = (self.device, self.given_workers) if self.is_active else None
        self.hear(kwargs)
        known = set(self._runs)
        trains = mode in ("train", "tune")
        with sigterm.orderly_end() if trains else nullcontext(), self.active(), a_run():
            if trains:
                kwargs = self.train_arguments(kwargs)
            if mode == "tune" and hooks.missing(hooks.CHILDREN):
                hooks.say(f"{hooks.CHILDREN} is left off: {hooks.missing(hooks.CHILDREN)[0]}", warning=True)
            try:
                with hooks.children_follow(self.child_environment()), hooks.launch_is_possible():
                    result = method(*args, **kwargs)
            except YoloRocmError:
                from .training import discard_if_empty

                discard_if_empty(getattr(yolo, "trainer", None))
                raise
            except Exception as error:
                hooks.say_diagnosis(error)
                raise
            except (KeyboardInterrupt, sigterm.Terminated) as stop:
                for trainer, run in list(self._runs.items()):
                    if trainer not in known:
                        run.say_stopped(stop)
                raise
            finally:
                self._let_go(known)
                if trains:
                    from .training import keep_folder

                    keep_folder(getattr(yolo, "trainer", None))
                if outer:  # a run inside another, from a callback
                    self.device, self.given_workers = outer
        return self._stream(result) if inspect.isgenerator(result) else result

    def _let_go(self, known: set[Any]) -> None:
        """Close trainings begun since `known` that ended in an error: older Ultralytics runs no teardown then."""
        for trainer, run in list(self._runs.items()):
            if trainer not in known and run.thread == threading.get_ident():
                run.close()
                self._runs.pop(trainer, None)

    def _stream(self, results: Any) -> Iterator[Any]:
        """Compute each item under the preset, and give torch back in between.

        What runs between two items is the caller's: it may use torch for something else, run another stream under
        another preset, or never come back. So the preset is let go each time.
        """
        with closing(results):
            while True:
                with self.active():
                    try:
                        item = next(results)
                    except StopIteration:
                        return
                yield item

    def command(self) -> RunCommand:
        """Return the run as the command line has it, for whoever wants to go on with it."""
        from .. import ultralytics_hooks as hooks

        launched = None if hooks.runs_launched_file() else hooks.place_of_rank()
        return run_command(self.source, self.rocm, self.device, self.given_workers, launched)

    def child_environment(self) -> dict[str, str]:
        """Return what a child process needs to build the same session again."""
        return describe(self, self.given_workers)


def _no_device_augment() -> tuple[str, ...]:
    """Return why the installed Ultralytics cannot leave augmentations to the device; nothing where it can."""
    from .. import ultralytics_hooks as hooks

    return (*hooks.missing(hooks.DEVICE_AUGMENT), *hooks.missing(hooks.AUGMENT_STEP))
