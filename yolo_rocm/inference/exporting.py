"""`yolo-rocm export`: on the CPU, whatever the GPU's libraries do, and delivered when it predicts as torch does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..diagnosis.predict_engines import PREDICT_ENGINES
from ..errors import ExportError
from ..hardware import detect
from ..ultralytics_hooks import models, predicting
from ..ultralytics_hooks.log import progress_bar, say
from .exported import new_export, put_in_place
from .measure import Measured, Trial, keep_images, measure, reference
from .ways import Way

_BUILT_IN_CONF: Final = 0.25  # Ultralytics' own, in models that are exported with nms=True
_IMAGES: Final = 4
_FORMATS: Final = ("torchscript", "ncnn", "onnx", "openvino")


def is_checked(model: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether an export is one of those that are checked: weights, and a format that this package predicts."""
    return str(arguments.get("format", "torchscript")) in _FORMATS and str(model).endswith(".pt")


def export_checked(model: Any, task: str | None = None, **arguments: Any) -> Path:
    """Export weights beside them; the file is there when it has predicted what torch predicts, and not before.

    Args:
        model: Weights.
        task: Their task, where the file does not tell.
        **arguments: Ultralytics' arguments of `export`.

    Raises:
        ExportError: It cannot be exported, or does not agree; nothing is left behind, an older file stays.
    """
    engine = str(arguments.pop("format", "torchscript"))
    machine = detect()
    lacking = PREDICT_ENGINES[engine].not_installed(machine)
    if lacking:
        line = PREDICT_ENGINES[engine].install_line(machine.system)
        raise ExportError(f"format={engine} needs {' and '.join(lacking)}. Run: {line}")
    yolo = models.load_model(model, task)
    weights = predicting.weights_of(yolo)
    if weights is None:
        raise ExportError(f"{model} has no weights to export. Give a .pt file.")
    asked = arguments.get("imgsz")
    imgsz = arguments["imgsz"] = predicting.size_of(yolo, asked)
    if asked and imgsz != asked:
        say("export.imgsz", f"imgsz={imgsz} in place of {asked}: a multiple of the stride, as weights predict with")
    way = Way(engine)
    with progress_bar(f"exporting to {engine}, then comparing with torch") as show:
        show(0, 2)
        with new_export(weights, way.format, arguments, weights.parent) as product:
            show(1, 2)
            _judge(_compared(weights, yolo.task, product, way, arguments), engine, arguments)
            put_in_place(product, weights.parent / product.name)
        return weights.parent / product.name


def _compared(weights: Path, task: str, product: Path, way: Way, given: Mapping[str, Any]) -> Measured:
    with tempfile.TemporaryDirectory(prefix="yolo-rocm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "images").mkdir()
        keep_images(predicting.first_images(predicting.sample_images(), _IMAGES), folder / "images")
        conf = _BUILT_IN_CONF if given.get("nms") else None
        batch = int(given.get("batch") or 1)
        trial = Trial(weights, task, given["imgsz"], batch, folder / "images", folder, conf, seconds=0.0)
        trial, _ = reference(trial)
        return replace(measure(trial, way, product), conf=trial.conf)


def _judge(row: Measured, engine: str, given: Mapping[str, Any]) -> None:
    """Say that an exported model agrees, or raise that it does not."""
    if row.error:
        raise ExportError(f"the exported model does not predict, and is thrown away: {row.error}")
    assert row.agreement is not None
    share, objects = row.agreement.share, row.agreement.objects
    if not objects:
        say(
            "export.unchecked",
            f"the exported model was not compared with torch: on {_IMAGES} photographs it finds nothing",
        )
    elif row.agreement.agrees:
        say("export.agrees", f"the exported model agrees with torch: {share:.3f} of {objects} objects are the same")
    elif given.get("int8") or str(given.get("quantize", "")) in ("8", "int8"):
        say("export.int8", f"in int8 {share:.3f} of {objects} objects are those of torch", warning=True)
    else:
        raise ExportError(
            f"the exported model does not agree with torch, and is thrown away: {share:.3f} of {objects} objects are "
            f"the same, scores differ by up to {row.agreement.score:.2f}. Export to another format, or with "
            f"another version of {' and '.join(PREDICT_ENGINES[engine].packages) or 'torch'}. `yolo-rocm bench predict "
            "MODEL.pt` shows which of those installed here agree."
        )
