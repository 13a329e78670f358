"""Reading a run folder: what is in it, and what is missing or odd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..telemetry.table import TELEMETRY_FILE
from ..telemetry.wait_meter import EPOCHS_FILE
from ..utils.limited_files import read_json, read_yaml
from .columns import by_epoch, by_time
from .files import Reader
from .remarks import remarks
from .run import RunData

FACTS_FILE: Final = "rocm.json"
RESULTS_FILE: Final = "results.csv"
ARGUMENTS_FILE: Final = "args.yaml"


def read_run(folder: Path, mark: str = "") -> RunData:
    """Read a run folder.

    Args:
        folder: The folder.
        mark: `A` or `B` where it is one of two.

    Raises:
        ConfigError: It is not the folder of a training.
    """
    folder = Path(folder)
    _check(folder)
    reader = Reader(folder)
    loses = "no settings, no convolutions, no hardware (a run that was killed early has none)"
    facts = reader.mapping(FACTS_FILE, loses, read_json)
    arguments = reader.mapping(ARGUMENTS_FILE, "no arguments of Ultralytics", read_yaml)
    loading, again = by_epoch(*reader.table(EPOCHS_FILE, "no data wait, no images/s and no verdict"))
    telemetry, pauses = by_time(*reader.table(TELEMETRY_FILE, "no memory, utilisation, temperature and power"))
    results, twice = by_epoch(*reader.table(RESULTS_FILE, "no losses and no metrics"))
    own = (FACTS_FILE, EPOCHS_FILE, TELEMETRY_FILE)
    odd = reader.remarks
    if not any((folder / name).exists() for name in own):
        odd = [f"{', '.join(own)} are missing: this package did not train the run, so only its results are shown"]
    run = RunData(folder, facts, arguments, loading, telemetry, results, mark=mark)
    return replace(run, remarks=(*odd, *remarks(run, bool(again or twice), pauses)))


def _check(folder: Path) -> None:
    known = (RESULTS_FILE, FACTS_FILE, EPOCHS_FILE, ARGUMENTS_FILE)
    if not folder.is_dir():
        raise ConfigError(f"there is no folder '{folder}'. Give the folder of a training, the one with {RESULTS_FILE}.")
    if not any((folder / name).is_file() for name in known):
        raise ConfigError(
            f"'{folder}' is no run folder: none of {', '.join(known)} is in it. Give the folder of a training."
        )
