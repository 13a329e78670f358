"""`python -m yolo_rocm.bench.certify_parts PART SETTINGS FILE`: the parts of a certification that train and measure.

Each runs in a process of its own, with the variables of the preset, and leaves its result in a file: a card that brings
the process down costs this part alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..conv.names import PASSES
from ..diagnosis.outcome import Limits
from ..engines.names import NATIVE
from ..utils.child_process import UNKILLABLE, end_group, ending, last_lines, own_group, python_path

if TYPE_CHECKING:
    from ..norm.report import NormReport

# AdamW moves every weight in its first steps, so that wrong gradients show at once: a row that is left out at the edge
# of every 3x3 layer changes a loss by 2e-2, no gradients at all by 2e-1. Torch's own kernels on a CPU, with and without
# oneDNN, differ by 2e-4 over three steps (9e-4 with images of 128 pixels), and ours from them by 1.2e-3 with torch
# 1.13.1; later steps blow rounding up.
STEPS: Final = 3
_TRAINING: Final[dict[str, Any]] = {"imgsz": 96, "batch": 8, "optimizer": "AdamW", "lr0": 0.001, "momentum": 0.9}
_END_S: Final = Limits.end
_MODEL: Final = "yolov8n.yaml"
_COLUMNS: Final = (
    *("way", "step_ms", "to_stock", "to_vendor_off", "peak_mb", "loss", "departure", "wrong", "served", "error"),
)


class PartError(Exception):
    """A part's process ended without a result; the message says how."""


class HeldError(PartError):
    """A part's process cannot be killed: the driver holds it, and it the device."""


def in_child(part: str, settings: Mapping[str, Any], environ: Mapping[str, str], limit_s: float) -> dict[str, Any]:
    """Run a part in a process of its own and return its result.

    Args:
        part: One of `PARTS`.
        settings: Its arguments.
        environ: The variables of the process; those that keep Ultralytics off the network are added.
        limit_s: Seconds after which it is ended.

    Raises:
        PartError: It ended without a result.
        HeldError: It does not end at all.
    """
    path = python_path(environ.get("PYTHONPATH"))
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-certify-", ignore_cleanup_errors=True) as folder:
        result = Path(folder) / "result.json"
        own = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_CONFIG_DIR": folder, "PYTHONPATH": path}
        words = json.dumps({**settings, "folder": folder})
        command = [sys.executable, "-m", "yolo_rocm.bench.certify_parts", part, words, str(result)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**{name: value for name, value in environ.items() if name != "YOLO_ROCM"}, **own},
            **own_group(),
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            words = f"no result within {limit_s:.0f} s"
            if not _end(process):
                raise HeldError(f"{words}, and the process {UNKILLABLE}") from None
            raise PartError(f"{words}: the process was ended") from None
        except BaseException:
            _end(process)
            raise
        if process.returncode == 0 and result.exists():
            found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
            return found
        raise PartError(_how_it_ended(process.returncode, said.decode("utf-8", errors="replace")))


def _end(process: subprocess.Popen[bytes]) -> bool:
    """End a process with all its children; return whether it has gone."""
    try:
        return end_group(process, _END_S)
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _how_it_ended(code: int, said: str) -> str:
    return f"the process {ending(code)}{last_lines(said, 2)}"


def training(given: Mapping[str, Any]) -> dict[str, Any]:
    """Train a nano model for a few steps on made data, and the same by plain Ultralytics on the CPU: all losses.

    Args:
        given: `device`, `preset`, `rocm`, and `folder`, where everything goes.
    """
    from ..api import register
    from ..ultralytics_hooks import models, train_steps
    from .demo_data import make_data

    folder, batch = Path(given["folder"]), _TRAINING["batch"]
    data = make_data(folder / "data", images=batch * STEPS, size=_TRAINING["imgsz"])

    def losses_of(yolo: Any, device: str) -> list[float]:
        losses = train_steps.record_losses(yolo)
        yolo.train(
            data=str(data), epochs=1, nbs=batch, warmup_epochs=0, mosaic=0.0, close_mosaic=0, seed=0,
            deterministic=True, amp=False, workers=0, plots=False, save=False, val=False, verbose=False,
            device=device, project=str(folder), name=f"on-{device}", **_TRAINING,
        )  # fmt: skip
        return losses

    yolo = models.load_model(_MODEL)
    registration = register(yolo, given["preset"], given["rocm"])
    ours = losses_of(yolo, given["device"])
    report, norms = registration.report, registration.norm_report
    registration.remove()
    # The CPU last: Ultralytics hides the GPUs of a process that trains there.
    reference = losses_of(models.load_model(_MODEL), "cpu")
    served = report.served.values() if report else ()
    return {
        "ours": ours,
        "torch_cpu": reference,
        "computed_by": report.summary() if report else "nothing of ours",
        "shapes_of_ours": sum(
            any(each.plan[which].algorithm.engine not in NATIVE for which in PASSES) for each in served
        ),
        "norms_computed_by": _algorithms_of(norms),
    }


def _algorithms_of(report: NormReport | None) -> dict[str, int]:
    """Return how many shapes each algorithm has served, by forward and backward pass."""
    found: Counter[str] = Counter()
    for served in report.served.values() if report is not None else ():
        found.update(f"{which} by {choice.algorithm.name}" for which, choice in served.plan.items())
    return dict(found)


def kernel_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return which kernels of convolutions there are to try, and what error is allowed them, in words.

    They come as the fields of their probes: it takes torch to know them.

    Args:
        given: `quick`, for fp32 alone.
    """
    from ..engines.qualification import ROUNDINGS
    from .certify_kernels import kernel_probes

    allowed = (
        f"twice the error of torch's own kernel on the CPU, or of a plain sum of as many terms; {ROUNDINGS} roundings "
        "where an algorithm pays speed with digits"
    )
    return {"probes": [astuple(each) for each in kernel_probes(given["quick"])], "allowed": allowed}


def norm_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of BatchNorm, alone and with its activation.

    Args:
        given: `quick`, for fp32 alone.
    """
    from ..norm.exactness import ROUNDINGS, ROUNDINGS_OF_TORCH
    from .certify_norms import norm_probes

    allowed = (
        f"{ROUNDINGS:g} roundings of what sums are computed in, {ROUNDINGS_OF_TORCH:g} of torch's own, times what a "
        "large mean costs in digits, and one of the result; the activation computed once more has to have the same bits"
    )
    return {"probes": [astuple(each) for each in norm_probes(given["quick"])], "allowed": allowed}


def bench_conv(given: Mapping[str, Any]) -> dict[str, Any]:
    """Time the vendor library and `auto` on the layers of a model that have the most work.

    Args:
        given: `device`, `batch`, `imgsz`, `layers`, and `vendor`, False where its library ends processes.
    """
    import torch

    from ..conv.plan import Planner
    from . import conv
    from .layers import OURS, model_layers, threads_of_a_training

    device = _torch_name(given["device"])
    with threads_of_a_training(device):
        every = model_layers(_MODEL, given["imgsz"], given["batch"], torch.float32, device)
        chosen = sorted(every, key=lambda layer: -layer.problem.flops * len(layer.names))[: given["layers"]]
        planner = Planner(OURS, remember=False, for_training=False)
        rows = conv.bench_conv(chosen, planner, lambda *_: None, repeats=3, quick=True, vendor=given["vendor"])
        threads = torch.get_num_threads()
    return {
        "model": _MODEL,
        "dtype": "fp32",
        "layout": "nchw",
        **{key: given[key] for key in ("batch", "imgsz")},
        "layers": f"{len(chosen)} of {len(every)}, those with the most work",
        "threads": threads,
        "totals_ms": conv.totals(rows),
    }


def bench_train(given: Mapping[str, Any]) -> dict[str, Any]:
    """Time a few whole training steps: torch as it is, the vendor library off, and ours.

    Args:
        given: `device`, `batch`, `imgsz`, `steps`, `tune_s`, and `vendor`, False where its library ends processes.
    """
    import torch

    from . import train, train_table
    from . import ways as made
    from .layers import threads_of_a_training

    device = _torch_name(given["device"])
    every = made.ways(quick=True, on_gpu=device != "cpu")
    ways = [way for way in every if given["vendor"] or way.kind != made.STOCK_KIND]
    sizes = {key: given[key] for key in ("batch", "imgsz", "steps", "tune_s")}
    with threads_of_a_training(device):
        bench = train.TrainBench(_MODEL, amp=False, device=device, **sizes)
        bench.run(ways, lambda *_: None)
        threads = torch.get_num_threads()
    # Losses of the vendor library are no reference: where it is wrong, ours must not be called so.
    own = [*(way for way in ways if way.kind != made.STOCK_KIND), *ways]
    reference = next((way for way in own if way.step_ms is not None), None)
    table = train_table.rows(ways, amp=False, reference=reference)
    ours = [row for row in table if row.way.startswith(made.OURS_KIND)]
    rows = [asdict(row) for row in table]
    return {
        "model": _MODEL,
        "dtype": "fp32",
        **{key: given[key] for key in ("batch", "imgsz", "steps")},
        "threads": threads,
        "ways": {row["way"]: {key: row[key] for key in _COLUMNS[1:]} for row in rows},
        "summary": train_table.summary(ways, table),
        "reference": reference.name if reference is not None else None,
        "failures": train_table.failures(ours, bench.held_mb),
        "torch_own_failures": train_table.failures(row for row in table if row not in ours),
    }


def _torch_name(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


PARTS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "kernel_names": kernel_names,
    "norm_names": norm_names,
    "training": training,
    "bench_conv": bench_conv,
    "bench_train": bench_train,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the part that the command line names."""
    part, settings, result = sys.argv[1:] if arguments is None else arguments
    found = PARTS[part](json.loads(settings))
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
