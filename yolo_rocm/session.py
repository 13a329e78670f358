"""What is on, for how long: one preset applied to a training, a YOLO object, or every YOLO object of the process."""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import environ
from .errors import YoloRocmError
from .hardware import detect
from .off_switch import enabled
from .preset import Settings, resolve

if TYPE_CHECKING:
    from .conv.report import ConvReport
    from .conv.seam import Patch
    from .data.policy import LoaderPolicy
    from .data.reader import Trace
    from .diagnosis.health import Advice
    from .training import TrainingRun

CHILD_VARIABLE = "YOLO_ROCM_CHILD"
_EVENTS = (
    "on_pretrain_routine_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_train_epoch_end",
    "on_fit_epoch_end",
    "on_train_end",
    "teardown",
    "on_predict_start",
)


class Session:
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
        self._depth = 0
        self._announced = False
        self._switches = ExitStack()
        self._runs: weakref.WeakKeyDictionary[Any, TrainingRun] = weakref.WeakKeyDictionary()
        self._patch: Patch | None = None
        self._given_workers: int | None = None
        self._advice: Advice | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {name: getattr(self, name) for name in ("source", "rocm", "machine", "settings", "device")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start inactive."""
        self.__dict__.update(state)
        self._reset()

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
        with environ.applied(decisions, system=self.machine.system, needs_gpu=on_gpu) as late:
            yield [*late, *(decision.said for decision in decisions if decision.said)]

    def set_early(self) -> ExitStack:
        """Set the variables that must be there before HIP starts, until the returned stack is closed.

        Between registering an object and training it anything may start HIP. What comes too late already is told, or
        ends the run, when the run begins: only then it is known whether it is for the GPU.
        """
        held = ExitStack()
        held.enter_context(environ.applied(environ.early(self.variables()), needs_gpu=False))
        return held

    def variables(self) -> list[environ.Decision]:
        """Return what becomes of each environment variable; nothing is changed."""
        return environ.plan(self.settings.preset, self.machine, self.device) if enabled() else []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply the preset: environment, vendor library, convolutions, loaders. Nested use counts."""
        with self._lock:
            if self._depth == 0 and enabled():
                with ExitStack() as switches:
                    self._switch_on(switches)
                    self._switches = switches.pop_all()
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._switches.close()

    @property
    def report(self) -> ConvReport | None:
        """What the convolutions of the newest run were served by; None before the first."""
        return None if self._patch is None else self._patch.report

    def begin_run(self) -> None:
        """Start a new report, unless a run is going on; plans are kept."""
        with self._lock:
            if self._depth == 0 and self._patch is not None:
                self._patch = self._patch.renewed()

    def tune(self) -> None:
        """Measure the algorithms for every convolution seen so far; later runs on this device know the result."""
        wanted = self.settings.preset.conv.tune
        if self._patch is None or wanted == "off" or not self._patch.planner.tunable:
            return
        from . import ultralytics_hooks as hooks

        problems = [p for p in self._patch.report.served if wanted == "on" or p.device.startswith("cuda")]
        with hooks.progress("measuring convolutions") as progress:
            timings = self._patch.planner.tune(problems, progress)
        if timings:
            hooks.say(f"measured {len(timings)} convolutions, kept for later runs")
            self._patch.report.replan(self._patch.planner.plan)

    @property
    def is_active(self) -> bool:
        """Tell whether the preset is applied now."""
        return self._depth > 0

    def _switch_on(self, switches: ExitStack) -> None:
        preset = self.settings.preset
        # The environment comes first: importing torch may be the moment at which it is read.
        late = switches.enter_context(self.environment())
        import torch

        from . import ultralytics_hooks as hooks
        from .conv.plan import Planner
        from .conv.seam import Patch, installed
        from .conv.switches import vendor_off
        from .diagnosis.probe_list import TORCH_NAMES

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
        switches.enter_context(hooks.loaders_follow(self.loader_policy()))
        if self._patch is None:
            conv = preset.conv
            avoid = [getattr(torch, TORCH_NAMES[dtype]) for dtype in learned.conv_avoids]
            self._patch = Patch(conv.devices, Planner(conv.engine, learned.vendor, conv.memory_mb, avoid_vendor=avoid))
        switches.enter_context(installed(self._patch))

    @property
    def device_augment(self) -> bool:
        """Whether augmentations are left to the device: wanted, and possible with the installed Ultralytics."""
        return self.settings.preset.loader.device_augment and not _no_device_augment()

    def loader_policy(self) -> LoaderPolicy:
        """Return what the preset says about loaders, as the loaders take it."""
        from . import ultralytics_hooks as hooks
        from .data.policy import LoaderPolicy
        from .ultralytics_data import MODULES, UltralyticsAdapter

        loader = self.settings.preset.loader
        given = self._given_workers
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

    def _observe(self, kind: str, trace: Trace, asked: float, got: float) -> None:
        for run in list(self._runs.values()):
            run.meter.observe(kind, trace, asked, got)

    def _prefetch_device(self) -> Any:
        """Return the device that training batches are copied to ahead of time, or None."""
        for run in list(self._runs.values()):
            return run.prefetch_device(self.settings.preset.loader.device_prefetch)
        return None

    def _learned(self) -> Advice:
        """Return what the doctor's probes of this GPU and stack mean for the run."""
        if self._advice is None:
            from .diagnosis.health import advise, memory_file, recall

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
            yield f"preset {preset.name} is for a GPU and torch finds none: its settings for cuda stay idle"
        yield from self._left_off()

    def _left_off(self) -> Iterator[str]:
        """Say what the preset asks for and the installed Ultralytics has no place for."""
        from . import ultralytics_hooks as hooks

        loader = self.settings.preset.loader
        for feature, wanted, why in (
            (hooks.DEVICE_AUGMENT, loader.device_augment, _no_device_augment()),
            (hooks.REDUCED_DECODE, loader.reduced_decode, hooks.missing(hooks.REDUCED_DECODE)),
            (hooks.DAMAGED_IMAGES, loader.skip_broken, hooks.missing(hooks.DAMAGED_IMAGES)),
        ):
            if wanted and why:
                yield f"{feature} is left off with this Ultralytics: {why[0]}"

    def train_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Lay the preset's Ultralytics arguments under those of a call. A resumed run keeps the ones it began with."""
        from . import ultralytics_hooks as hooks

        if arguments.get("resume"):
            return dict(arguments)
        taken = set(arguments) | set(_keys_of_cfg(arguments.get("cfg")))
        added = {k: v for k, v in self.settings.preset.train.items() if k not in taken}
        unknown = [name for name in added if not hooks.knows_argument(name)]
        if unknown:
            hooks.say(f"this Ultralytics has no argument {', '.join(unknown)}: left out")
        return {**{k: v for k, v in added.items() if k not in unknown}, **arguments}

    def run_mode(self, yolo: Any, mode: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one mode of a YOLO object under the preset; a stream stays under it while it computes, not between."""
        from . import ultralytics_hooks as hooks

        if not enabled():
            return method(*args, **kwargs)
        self.device = kwargs.get("device", self.device)
        self.begin_run()
        self._given_workers = kwargs.get("workers", self._given_workers if self.is_active else None)
        with self.active():
            if mode in ("train", "tune"):
                kwargs = self.train_arguments(kwargs)
            if mode == "tune" and hooks.missing(hooks.CHILDREN):
                hooks.say(f"{hooks.CHILDREN} is left off: {hooks.missing(hooks.CHILDREN)[0]}", warning=True)
            try:
                with hooks.children_follow(self.child_environment()):
                    result = method(*args, **kwargs)
            except YoloRocmError:
                from .training import discard_if_empty

                discard_if_empty(getattr(yolo, "trainer", None))
                raise
            except Exception as error:
                hooks.say_diagnosis(error)
                raise
            finally:
                self._let_go()
        return self._stream(result) if inspect.isgenerator(result) else result

    def _let_go(self) -> None:
        """Close trainings that ended in an error: older Ultralytics runs no teardown then."""
        for run in list(self._runs.values()):
            run.close()

    def _stream(self, results: Any) -> Iterator[Any]:
        try:
            while True:
                with self.active():
                    try:
                        item = next(results)
                    except StopIteration:
                        return
                yield item
        finally:
            results.close()

    def child_environment(self) -> dict[str, str]:
        """Return what a child process needs to build the same session again."""
        here = str(Path(__file__).parent.parent)  # a child must find this package however this process found it
        path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), here) if part)
        described = json.dumps({"preset": self.source, "rocm": self.rocm}, default=str)
        return {CHILD_VARIABLE: described, "PYTHONPATH": path}

    def callbacks(self) -> dict[str, Callable[[Any], None]]:
        """Return the session as Ultralytics callbacks."""
        return {event: getattr(self, event) for event in _EVENTS}

    def on_pretrain_routine_start(self, trainer: Any) -> None:
        """Take a training over: its convolutions, its loaders, its arguments."""
        from .training import TrainingRun

        if enabled() and trainer not in self._runs:
            if self.device is None:
                self.device = trainer.args.device
            self._runs[trainer] = TrainingRun(self, trainer)

    def on_train_epoch_start(self, trainer: Any) -> None:
        """Begin to measure how long the epoch waits for data."""
        if trainer in self._runs:
            self._runs[trainer].epoch_starts()

    def on_train_batch_start(self, trainer: Any) -> None:
        """Attribute the convolutions of the first batch to layers."""
        if trainer in self._runs:
            self._runs[trainer].batch_starts()

    def on_train_batch_end(self, trainer: Any) -> None:
        """Log what was patched."""
        if trainer in self._runs:
            self._runs[trainer].batch_ends()

    def on_train_epoch_end(self, trainer: Any) -> None:
        """Say how long the epoch waited for data, and attribute the convolutions of the first validation to layers."""
        if trainer in self._runs:
            self._runs[trainer].epoch_trained()

    def on_fit_epoch_end(self, trainer: Any) -> None:
        """Stop to attribute convolutions to layers."""
        if trainer in self._runs:
            self._runs[trainer].epoch_validated()

    def on_train_end(self, trainer: Any) -> None:
        """Write `rocm.json` beside the results."""
        if trainer in self._runs:
            self._runs[trainer].write_report()

    def teardown(self, trainer: Any) -> None:
        """Let go of a training."""
        if trainer in self._runs:
            self._runs.pop(trainer).close()

    def on_predict_start(self, predictor: Any) -> None:
        """Run a predictor's warm-up and inference under the preset, where `register` does not do so already."""
        if not enabled() or self.is_active or getattr(predictor, "_yolo_rocm_scoped", False):
            return
        from . import ultralytics_hooks as hooks

        if hooks.missing(hooks.PREDICT_CALLBACKS):
            hooks.say("callbacks alone do not reach predictions of this Ultralytics: use register()", warning=True)
            return
        predictor._yolo_rocm_scoped = True
        predictor.inference = self._scoped(predictor.inference)
        object.__setattr__(predictor.model, "warmup", self._scoped(predictor.model.warmup))

    def _scoped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.active():
                return function(*args, **kwargs)

        return run


def _no_device_augment() -> tuple[str, ...]:
    """Return why the installed Ultralytics cannot leave augmentations to the device; nothing where it can."""
    from . import ultralytics_hooks as hooks

    return (*hooks.missing(hooks.DEVICE_AUGMENT), *hooks.missing(hooks.AUGMENT_STEP))


def _keys_of_cfg(path: Any) -> list[str]:
    """Return the keys a user's `cfg=` file sets; they win over a preset like arguments do."""
    if not path or not Path(path).is_file():
        return []
    import yaml

    data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return list(data) if isinstance(data, dict) else []
