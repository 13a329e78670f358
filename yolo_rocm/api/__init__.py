"""The ways in: train or run a mode, register a YOLO object or every one of the process, or take the callbacks.

`registration` puts a preset on objects that exist, and an engine of prediction if one is asked for; `runs` begins a run
itself, as the command line does. May import everything below it, from `inference` down to `utils`. A newcomer adds an
argument to a way in here, and what it does to the room it belongs to.
"""

from .registration import Registration, callbacks, everywhere, register
from .runs import RunOutcome, run_mode, run_training, train

__all__ = [
    "Registration", "RunOutcome", "callbacks", "everywhere", "register", "run_mode", "run_training", "train",
]  # fmt: skip
