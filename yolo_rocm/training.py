"""One training under a session: taken over when it begins, reported after its first batch, let go in every case."""

from __future__ import annotations

import json
import shutil
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import ultralytics_hooks as hooks
from .errors import YoloRocmError

if TYPE_CHECKING:
    from .session import Session

REPORT_FILE = "rocm.json"


class TrainingRun:
    """Everything this package holds of one trainer. Created by `on_pretrain_routine_start`."""

    def __init__(self, session: Session, trainer: Any) -> None:
        self._session = session
        self._trainer = weakref.ref(trainer)
        self._held = ExitStack()
        self._naming = ExitStack()
        self._reported = self._validated = False
        if not session.is_active:
            session.begin_run()
            self._apply_train_section(trainer)
        if hooks.loads_data_already(trainer):
            # Older Ultralytics announces the training from inside train(): nothing is left to wrap, and it runs no
            # teardown after an error. The trainer's own end is then the last chance to let go.
            self._held.enter_context(session.active())
            weakref.finalize(trainer, self._held.close)
        else:
            trainer.train = self._around(trainer.train)

    def _around(self, train: Any) -> Any:
        def run() -> Any:
            within = self._session.is_active
            try:
                with self._session.active():
                    return train()
            except YoloRocmError:
                discard_if_empty(self._trainer())
                raise
            except Exception as error:
                if not within:  # otherwise the session says it
                    hooks.say_diagnosis(error)
                raise
            finally:
                self.close()

        return run

    def _apply_train_section(self, trainer: Any) -> None:
        """Lay the preset's arguments under the trainer's.

        Only callbacks on their own get here; which values the user gave is no longer known, so a value that equals
        Ultralytics' default counts as not given.
        """
        if trainer.args.resume:
            return
        for name, value in self._session.settings.preset.train.items():
            known = hooks.knows_argument(name)
            if known and getattr(trainer.args, name, None) == hooks.default_argument(name) != value:
                hooks.set_trainer_argument(trainer, name, value)
                hooks.say(f"{name}={value} from preset {self._session.settings.preset.name}")

    def batch_starts(self) -> None:
        """Begin to attribute convolutions to layers, in the first batch."""
        trainer = self._trainer()
        if trainer is not None and not self._reported:
            self._name_layers(trainer.model)

    def batch_ends(self) -> None:
        """Say what was patched, after the first batch."""
        if not self._reported and self._session.report is not None:
            self._reported = True
            self._naming.close()
            self._session.tune()
            hooks.say(f"{self._session.report.summary()} (each of them in {REPORT_FILE})")

    def epoch_trained(self) -> None:
        """Attribute layers that only run in validation, such as the head's box decoding, in the first epoch."""
        trainer = self._trainer()
        if trainer is not None and not self._validated and getattr(trainer, "ema", None) is not None:
            self._name_layers(trainer.ema.ema)

    def epoch_validated(self) -> None:
        """Stop to attribute layers."""
        self._validated = True
        self._naming.close()

    def _name_layers(self, model: Any) -> None:
        self._naming.close()
        if self._session.report is not None:
            self._naming.enter_context(self._session.report.naming(hooks.plain_model(model)))

    def write_report(self) -> None:
        """Write settings with their origins and the table of convolutions beside `results.csv`."""
        trainer = self._trainer()
        if trainer is None or self._session.report is None:
            return
        import torch
        import ultralytics

        data = {
            "stack": {"torch": torch.__version__, "ultralytics": ultralytics.__version__},
            "settings": self._session.settings.as_dict(),
            "convolutions": self._session.report.as_dict(),
        }
        path = Path(trainer.save_dir) / REPORT_FILE
        path.write_text(json.dumps(data, indent=2, default=str) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Let go of the trainer; safe to call twice."""
        self._naming.close()
        self._held.close()


def discard_if_empty(trainer: Any) -> None:
    """Remove the run folder of a training that our own refusal ended before it had any result."""
    if trainer is None or trainer.args.exist_ok or trainer.args.resume:
        return
    folder = Path(trainer.save_dir)
    if not any(folder.glob("weights/*.pt")) and not (folder / "results.csv").exists():
        shutil.rmtree(folder, ignore_errors=True)
