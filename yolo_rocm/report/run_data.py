"""Reading a run folder: what is in it, and what is missing or odd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..telemetry.table import TELEMETRY_FILE
from ..telemetry.wait_meter import EPOCHS_FILE
from .columns import by_epoch, by_time
from .files import Reader
from .remarks import remarks
from .run import RunData

FACTS_FILE: Final = "rocm.json"
RESULTS_FILE: Final = "results.csv"
ARGUMENTS_FILE: Final = "args.yaml"


def read_run(folder: Path) -> RunData:
    """Read a run folder.

    Args:
        folder: The folder.

    Raises:
        ConfigError: It is not the folder of a training.
    """
    folder = Path(folder)
    _check(folder)
    reader = Reader(folder)
    facts = reader.json(FACTS_FILE, "no settings, no convolutions, no hardware (a run that was killed early has none)")
    arguments = reader.yaml(ARGUMENTS_FILE, "no arguments of Ultralytics")
    columns, rows = reader.table(EPOCHS_FILE, "no data wait, no images/s and no verdict")
    loading, again = by_epoch(columns, rows)
    verdicts = tuple(row[columns.index("verdict")] for row in rows) if "verdict" in columns else ()
    telemetry, pauses = by_time(*reader.table(TELEMETRY_FILE, "no memory, utilisation, temperature and power"))
    results, twice = by_epoch(*reader.table(RESULTS_FILE, "no losses and no metrics"))
    own = (FACTS_FILE, EPOCHS_FILE, TELEMETRY_FILE)
    said = reader.remarks
    if not any((folder / name).exists() for name in own):
        said = [f"{', '.join(own)} are missing: this package did not train the run, so only its results are shown"]
        said += [remark for remark in reader.remarks if not remark.startswith(own)]
    run = RunData(folder, facts, arguments, loading, verdicts, telemetry, results)
    return replace(run, remarks=(*said, *remarks(run, bool(again or twice), pauses)))


def _check(folder: Path) -> None:
    known = (RESULTS_FILE, FACTS_FILE, EPOCHS_FILE, ARGUMENTS_FILE)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"run folder '{folder}' {what}. Give the folder of a training, the one with {RESULTS_FILE}.")
    if any((folder / name).is_file() for name in known):
        return
    inside = {path.parent for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/{RESULTS_FILE}")}
    newest = sorted(inside, key=lambda path: path.stat().st_mtime, reverse=True)[:3]
    hint = f" Runs in it: {', '.join(str(path) for path in newest)}." if newest else ""
    raise ConfigError(
        f"'{folder}' is no run folder: none of {', '.join(known)} is in it. Give the folder of a training.{hint}"
    )
