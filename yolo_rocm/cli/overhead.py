"""`yolo-rocm bench overhead`: what report and telemetry cost a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..telemetry.steps import sampled_steps
from ..utils.console import print_json, stdout_for_json
from ..utils.progress import progress
from .options import AsJson, numbers, out


def bench_overhead(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [preset=] [imgsz=] [batch=] [images=] [rounds=] [threads=] [out=]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what report and telemetry cost a training, by epochs of one training with and without them."""
    from ..preset.restart import restart_if_late

    keys = {"model": "yolov8n.yaml", "preset": "auto", "imgsz": 160, "batch": 8, "rounds": 20, "threads": 1}
    given = numbers(words, {**keys, "images": 64, "out": "yolo-rocm-bench"})
    restart_if_late(given["preset"])
    folder = Path(given["out"])
    with stdout_for_json():  # what Ultralytics says about the training is not the result
        from ..bench import overhead as measure
        from ..bench.demo_data import make_data

        with progress("making images") as show:
            size = given["imgsz"]
            data = make_data(folder / "data", images=given["images"], size=size, progress=show)
        with progress("training epochs with and without", timed=True, slow=True) as show:
            result = measure.bench_overhead(data, folder, show, **{key: given[key] for key in keys})
        table = folder / f"overhead-{Path(given['model']).stem}-b{given['batch']}-{given['imgsz']}.csv"
        measure.write_csv(table, result, "yolo-rocm bench overhead " + " ".join(words or []))
    if as_json:
        print_json({**result.as_dict(), "table": str(table)})
        return
    shown = Table("compared with epochs without", "processor time", "by the clock", box=None, pad_edge=False)
    names = {measure.WATCHED: "sampling thread, once a second", measure.TIMED: "layers timed in every step"}
    for kind, name in names.items():
        shown.add_row(name, str(result.share(kind, "cpu_s")), str(result.share(kind, "wall_s")))
    out.print(shown)
    out.print("Median over rounds; in brackets the 95 % interval of the median.")
    out.print(f"The thread looked {measure.TIMES_AS_OFTEN} times as often; a tenth of the difference stands here.")
    out.print(
        f"By their own count: a look takes {result.look_ms:.2f} ms, the timeline of an epoch "
        f"{1e3 * result.timeline_s:.1f} ms; {result.accounted():.2%} in all. A step takes {result.step_s():.3f} s."
    )
    out.print(f"Paid once a training, page included: {result.once_s:.2f} s of processor time.")
    for epochs in measure.LENGTHS:
        timed = sampled_steps(epochs, result.steps)
        told = f"In all, for {epochs} epochs of {result.steps} steps, {timed} of which have their layers timed"
        out.print(f"{told}: {result.whole(epochs)} of the processor time.")
    out.print(f"\nevery epoch: {table}")
