"""One training under a session: taken over when it begins, reported after its first batch, let go in every case."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ultralytics_hooks as hooks
from ..data.prefetch import prefetch_default
from ..data.wait_meter import EpochSummary, Meter
from ..data.worker_count import recommended_workers
from ..data.worker_start import discard_prestarted, prestart
from ..errors import YoloRocmError
from ..telemetry.steps import SampledSteps
from ..telemetry.watch import watch
from ..ultralytics_hooks.datasets import AUGMENT_KEY
from ..utils.atomic import no_room, write_file
from . import sigterm
from .artifacts import surroundings, write_run_page
from .checkpoints import Checkpoints
from .run_mark import a_run

if TYPE_CHECKING:
    from .session import Session

REPORT_FILE = "rocm.json"


class TrainingRun:
    """Everything this package holds of one trainer. Created by `on_pretrain_routine_start`."""

    def __init__(self, session: Session, trainer: Any) -> None:
        self._session = session
        self._trainer = weakref.ref(trainer)
        self.thread = threading.get_ident()
        self._began = datetime.now().astimezone()
        self._held = ExitStack()
        self._naming = ExitStack()
        self._reported = self._validated = self._written = False
        self._watches = session.settings.preset.report.telemetry and hooks.is_writer()
        self._steps = SampledSteps(self._watches)
        self._summary: EpochSummary | None = None
        self.meter = Meter(*hooks.loading_facts(trainer))
        if not session.is_active or session.lays_arguments:
            session.begin_run()
            self._apply_train_section(trainer)
        self._prepare_loading(trainer)
        self._stopped = False
        self._checkpoints = Checkpoints(trainer, session.settings, session.command())
        if hooks.announces_inside_train():
            # Older Ultralytics announces the training from inside train(): nothing is left to wrap, and it runs no
            # teardown after an error. The trainer's own end is then the last chance to let go.
            if not session.is_active:
                hooks.say("callbacks alone hear of a training late with this Ultralytics: register() covers its start")
            self._held.enter_context(session.active())
            weakref.finalize(trainer, self._held.close)
        else:
            trainer.train = self._around(trainer.train)
            # Some releases build the model, and run it once, between the trainer's making and its train().
            trainer.get_model = self._within(trainer.get_model)
            for name in ("train", "get_model"):
                self._held.callback(vars(trainer).pop, name, None)

    def _prepare_loading(self, trainer: Any) -> None:
        """Start interpreters for the workers while the model is being built, and leave augmentations to the device."""
        policy = self._session.loader_policy()
        asked = hooks.asked_workers(trainer, policy.insist, policy.workers)
        if asked:
            batch = hooks.asked_batch(trainer)
            count = recommended_workers(wanted=asked, asked=policy.insist, batch_size=batch, memfd=True)
            self._start_interpreters(int(count))
            self._held.callback(discard_prestarted)
        if self._session.device_augment:
            hooks.augment_on_device(trainer, AUGMENT_KEY)

    def _start_interpreters(self, count: int) -> None:
        policy = self._session.loader_policy()
        if policy.context == "spawn" and count:
            prestart(count, policy.modules)

    def prefetch_device(self, asked: bool | str) -> Any:
        """Return the GPU of the training if batches are to be copied there ahead of time, or None."""
        trainer = self._trainer()
        if trainer is None or trainer.device.type != "cuda":
            return None
        import torch

        memory = torch.cuda.get_device_properties(trainer.device).total_memory / 2**30
        wanted, _ = prefetch_default(memory, None if asked == "auto" else bool(asked))
        return trainer.device if wanted else None

    def is_set_up(self) -> None:
        """Let a resumed training go on exactly where it was, and listen to its backward pass."""
        self._checkpoints.begin()
        trainer = self._trainer()
        if trainer is not None:
            hooks.recognise_in_backward(trainer)
            self._watch(trainer)

    def _watch(self, trainer: Any) -> None:
        """Look at card and host from now on until the training is let go."""
        if not self._watches:
            return
        folder, interval = Path(trainer.save_dir), self._session.settings.preset.report.interval_s
        fresh, warn = not trainer.start_epoch, partial(hooks.say, warning=True)
        try:
            sampler = watch(trainer.device, folder, fresh=fresh, interval_s=interval, say=warn)
        except Exception as error:  # a training is worth more than its picture
            hooks.say(f"no telemetry: {type(error).__name__}: {error}", warning=True)
        else:
            self._held.callback(sampler.stop)

    def epoch_starts(self) -> None:
        """Begin to measure how long the epoch waits for data; warn if the one before gave NaN and is run again."""
        self._checkpoints.epoch_starts()
        trainer = self._trainer()
        if trainer is None:
            return
        if hooks.nan_recoveries(trainer):
            # Ultralytics carries on from last.pt, which can hide a kernel that computes wrongly.
            hooks.say(f"epoch {trainer.epoch + 1} gave NaN and is run again. {self._about_nan(trainer)}", warning=True)
        self.meter.begin(trainer.epoch + 1)
        self._steps.epoch_starts()
        if hooks.mosaic_closes_after(trainer):
            # New workers take over then; their interpreters start while this epoch trains.
            self._start_interpreters(hooks.worker_count(trainer.train_loader))

    def _about_nan(self, trainer: Any) -> str:
        advice = "try amp=False, and " if getattr(trainer, "amp", False) else ""
        return f"If it happens again: {advice}`yolo-rocm doctor` tests whether the kernels of this card compute right"

    def _within(self, function: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._session.active():
                return function(*args, **kwargs)

        return run

    def _around(self, train: Any) -> Any:
        def run() -> Any:
            with sigterm.orderly_end():  # outermost: it may end the process
                return held()

        def held() -> Any:
            within = self._session.is_active
            try:
                with self._saying_how_it_ends(), self._session.active(), a_run():
                    return train()
            except YoloRocmError:
                self._held.close()  # telemetry writes into the folder
                discard_if_empty(self._trainer())
                raise
            except Exception as error:
                if not within:  # otherwise the session says it
                    hooks.say_diagnosis(error)
                raise
            finally:
                self.close()
                keep_folder(self._trainer())

        return run

    @contextmanager
    def _saying_how_it_ends(self) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, sigterm.Terminated) as stop:
            self.say_stopped(stop)
            raise
        except Exception as error:
            self._leave_page()
            if isinstance(error, OSError) and no_room(error):
                raise self._checkpoints.no_room(error) from error
            raise

    def say_stopped(self, stop: BaseException) -> None:
        """Say which checkpoint is whole and how to go on, once, and leave the page of what there is."""
        if not self._stopped:
            self._stopped = True
            how = "stopped by SIGTERM" if isinstance(stop, sigterm.Terminated) else "stopped by Ctrl-C"
            hooks.say(self._checkpoints.stopped(how), warning=True)
            self._leave_page()

    def _leave_page(self) -> None:
        """Write what is known of a run that does not come to its end, if it has come to its first batch."""
        trainer = self._trainer()
        if trainer is None or not self._reported or self._written or not hooks.reports():
            return
        with sigterm.put_off():
            try:
                self._write_facts(trainer)
            except Exception as error:  # of less weight than what has ended the run
                hooks.say(f"no report was written: {type(error).__name__}: {error}", warning=True)
            else:
                write_run_page(trainer, self._session.settings, pictures=False)

    def _apply_train_section(self, trainer: Any) -> None:
        """Lay the preset's arguments under the trainer's.

        Only callbacks on their own get here; which values the user gave is no longer known, so a value that equals
        Ultralytics' default counts as not given.
        """
        if trainer.args.resume:
            return
        for name, value in self._session.train_section(trainer.args.device).items():
            known = hooks.knows_argument(name)
            if known and getattr(trainer.args, name, None) == hooks.default_argument(name) != value:
                hooks.set_trainer_argument(trainer, name, value)
                hooks.say(f"{name}={value} from preset {self._session.settings.preset.name}")

    def batch_starts(self) -> None:
        """Begin to attribute convolutions to layers, in the first batch."""
        sigterm.check()
        self._checkpoints.steps.batch_starts()
        trainer = self._trainer()
        if trainer is not None and not self._reported:
            self._name_layers(trainer.model)
        if self._steps.batch_starts() and trainer is not None and self._session.report is not None:
            # A hook would make a compiled model compile anew.
            model = None if hooks.is_compiled(trainer.model) else hooks.plain_model(trainer.model)
            self._steps.begin(self._session.report, model, trainer.device)

    def batch_ends(self) -> None:
        """Say what was patched, after the first batch."""
        self._steps.batch_ends()
        trainer = self._trainer()
        if trainer is not None:
            self._checkpoints.steps.batch_ends(trainer)
        if not self._reported and self._session.report is not None:
            self._reported = True
            self._naming.close()
            self._session.tune()
            if trainer is not None:  # the workers of the validation are wanted next
                self._start_interpreters(hooks.worker_count(getattr(trainer, "test_loader", None)))
            hooks.say(f"{self._session.report.summary()} (each of them in {REPORT_FILE})")

    def epoch_trained(self) -> None:
        """Say how long the epoch waited for data; name layers that only run in validation, in the first epoch."""
        trainer = self._trainer()
        self._summary = self.meter.end_training()
        if self._summary.batches:
            hooks.say(str(self._summary))
        for line in self.meter.new_broken():
            hooks.say(line, warning=True)
        if trainer is not None and not self._validated and getattr(trainer, "ema", None) is not None:
            self._name_layers(trainer.ema.ema)

    def epoch_validated(self) -> None:
        """Write the epoch's loading beside the results, and stop to attribute layers."""
        first, self._validated = not self._validated, True
        self._naming.close()
        trainer = self._trainer()
        if first and trainer is not None and self._session.report is not None and hooks.reports():
            self._write_facts(trainer)  # a run that is killed later has them too
        if trainer is not None and self._summary is not None:  # the final evaluation comes here again
            if hooks.reports():
                self.meter.write(Path(trainer.save_dir), self._summary)
            self._summary = None
        for line in self.meter.new_broken():
            hooks.say(line, warning=True)

    def _name_layers(self, model: Any) -> None:
        self._naming.close()
        if self._session.report is not None:
            self._naming.enter_context(self._session.report.naming(hooks.plain_model(model)))

    def write_report(self) -> None:
        """Write what is known of the run beside `results.csv`, as data and as a page."""
        self._checkpoints.finished()
        trainer = self._trainer()
        if trainer is not None and self._session.report is not None and hooks.reports():
            self._write_facts(trainer)
            write_run_page(trainer, self._session.settings)
            self._written = True

    def _write_facts(self, trainer: Any) -> None:
        """Write settings with their origins, the table of convolutions and the machine."""
        assert self._session.report is not None
        import torch
        import ultralytics

        from ..engines.triton.available import in_words

        data = {
            "stack": {
                "torch": torch.__version__,
                "ultralytics": ultralytics.__version__,
                "triton": in_words(str(trainer.device)),
            },
            "settings": self._session.settings.as_dict(),
            "convolutions": self._session.report.as_dict(),
            "step": self._session.report.times.step(),
            "broken_images": self.meter.broken,
            "loading": {"compute": self.meter.compute, "advice": self.meter.advice},
            "run": {"classes": hooks.class_names(trainer), "began": self._began.isoformat(timespec="minutes")},
            **surroundings(self._session.machine, self._session.settings),
        }
        path = Path(trainer.save_dir) / REPORT_FILE
        write_file(path, json.dumps(data, indent=2, default=str) + "\n")

    def close(self) -> None:
        """Let go of the trainer; safe to call twice."""
        self._naming.close()
        self._steps.abandon()
        self._held.close()


def discard_if_empty(trainer: Any) -> None:
    """Remove the run folder that a training has made and our own refusal ended before it had any result."""
    folder = getattr(trainer, "save_dir", None)
    if folder is not None and hooks.reports():
        hooks.discard_run_folder(Path(folder))


def keep_folder(trainer: Any) -> None:
    """Never remove the run folder of a training from now on."""
    folder = getattr(trainer, "save_dir", None)
    if folder is not None:
        hooks.forget_run_folder(Path(folder))
