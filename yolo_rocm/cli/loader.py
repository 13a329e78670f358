"""`yolo-rocm loader`: how batches will be loaded here."""

from __future__ import annotations

from typing import Annotated

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import AsJson, PresetName, print_table, say


def loader(
    preset: PresetName = "auto",
    verify: Annotated[
        bool, typer.Option("--verify", help="Load batches twice and compare them byte for byte.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print how batches will be loaded here: workers and why, start method, memory, and the preset's settings."""
    from ..data.describe import loader_facts, rows
    from ..data.transport import HAS_MEMFD
    from ..data.worker_count import recommended_workers
    from ..preset.resolve import resolve

    settings = resolve(preset)
    section = settings.preset.loader
    asked = settings.is_explicit("loader.workers")
    found = recommended_workers(wanted=section.workers, asked=asked, memfd=HAS_MEMFD)
    facts = loader_facts(found, section.model_dump())
    checked = None
    if verify:
        from ..data.verify import verify_reproducibility

        with stdout_for_json(as_json), progress("loading batches twice") as show:
            checked = verify_reproducibility(progress=show)
    if as_json:
        print_json({**facts, **({} if checked is None else {"reproducible": checked.same})})
        return
    print_table(("what", "value"), rows(facts))
    if checked is not None:
        say(str(checked))
