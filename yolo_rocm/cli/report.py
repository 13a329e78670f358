"""`yolo-rocm report`: the page of a run, or of two side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..utils.console import print_json
from ..utils.progress import progress
from .options import say


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a training, with results.csv.")],
    other_run_dir: Annotated[
        Path | None, typer.Argument(metavar="OTHER_RUN_DIR", help="Another one, to compare it with.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; by default report.html or report_compared.html in RUN_DIR."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print verdict and numbers as JSON; no page unless --out asks for one.")
    ] = False,
) -> None:
    """Make one page that shows what held a training up, or how two trainings differ. It needs no network."""
    from ..report.compare import differences, summary
    from ..report.page import write_page
    from ..report.run_data import read_run

    page: Path | None = None
    if as_json and out is None:
        with progress("reading"):
            runs = [read_run(folder) for folder in (run_dir, other_run_dir) if folder is not None]
    else:
        with progress("making the page"):
            page, runs = write_page(run_dir, other_run_dir, out)
    if as_json:
        data: dict[str, Any] = {"runs": [summary(run) for run in runs], "page": None if page is None else str(page)}
        if len(runs) == 2:
            data["differences"] = {group: [asdict(row) for row in rows] for group, rows in differences(*runs)}
        print_json(data)
        return
    for run in runs:
        say(f"{run.name}: {run.verdict.sentence}", *(f"  {remark}" for remark in run.remarks))
    say(f"page written to {page}")
