"""`yolo-rocm bench predict`: every way to predict that is installed, measured and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import BENCH_FOLDER, AsJson, cell, key_values, print_table, say

if TYPE_CHECKING:
    from ..bench.predict import PredictBench


def bench_predict(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL [imgsz=] [batch=] [source=] [images=] [seconds=] [limit_s=] [engines=] [device=] [out=]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time every way to predict that is installed, on every device it can use, and compare each with torch's result."""
    from ..bench import predict as measure
    from ..bench.checks import folder

    keys: dict[str, Any] = {"imgsz": None, "batch": 1, "source": None, "images": 32, "seconds": 10.0, "limit_s": 600.0}
    keys |= {"engines": None, "device": None}
    given = key_values(words, {"model": None, **keys, "out": BENCH_FOLDER})
    if given["model"] is None:
        raise typer.BadParameter("give the weights of a model, such as best.pt")
    out = folder(given["out"])
    with stdout_for_json(as_json), progress("measuring ways to predict", timed=True) as show:
        found = measure.bench_predict(given["model"], **{key: given[key] for key in keys}, progress=show)
    stem = f"predict-{Path(given['model']).stem}-{found.imgsz}-b{given['batch']}".replace(" ", "")
    table, drawing = (out / f"{stem}.{ending}" for ending in ("csv", "png"))
    title = f"{given['model']} imgsz {found.imgsz} batch {given['batch']}, {found.images} images"
    measure.write_csv(table, found, " ".join(("yolo-rocm bench predict", *(words or []))))
    measure.plot(drawing, found, title)
    if as_json:
        told = {"title": title, "ways": found.table(), "auto": found.chosen or None}
        print_json({**told, "table": str(table), "drawing": str(drawing)})
        return
    _print(found, title)
    say(f"\nevery number: {table}, drawn: {drawing}")


def _print(found: PredictBench, title: str) -> None:
    columns = {"export_s": 1, "setup_s": 2, "median_ms": 1, "p95_ms": 1, "images_per_s": 1, "agreement": 4}
    rows = [
        (f"{row['way']}{' *' if row['auto'] else ''}", *(cell(row[key], digits) for key, digits in columns.items()))
        for row in found.table()
    ]
    heads = ("way", "export s", "set-up s", "median ms", "p95 ms", "images/s", "agreement")
    print_table(heads, rows, title, cut=False)
    say(*(f"{row.way.name}: not runnable here: {row.error}" for row in found.rows if row.error))
    reference = found.rows[0]
    if not reference.objects:
        say("Nothing was found on these images, so that nothing could be compared. Give source= images of your own.")
        return
    say(
        f"Agreement: share of {reference.objects} objects that are those of torch in fp32 on the CPU, at IoU 0.9, from "
        f"score {reference.conf:g} on. A call has pre- and post-processing in it.",
        f"* what engine=auto takes: {found.chosen}" if found.chosen else "engine=auto takes torch.",
    )
