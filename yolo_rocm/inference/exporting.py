"""`yolo-rocm export`: on the CPU, whatever the GPU's libraries do, and delivered when it predicts as torch does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..diagnosis.predict_engines import PREDICT_ENGINES
from ..errors import ExportError
from ..hardware import detect
from ..ultralytics_hooks import models, predicting
from ..ultralytics_hooks.log import progress_bar, say
from .exported import new_export, put_in_place
from .measure import Measured, comparison
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
    missing = PREDICT_ENGINES[engine].missing(machine)
    if missing:
        line = PREDICT_ENGINES[engine].install_line(machine.system)
        raise ExportError(f"format={engine} needs {' and '.join(missing)}. Run: {line}")
    yolo = models.load_model(model, task)
    weights = predicting.weights_of(yolo)
    if weights is None:
        raise ExportError(f"{model} has no weights to export. Give a .pt file.")
    imgsz = predicting.size_of(yolo, arguments.get("imgsz"))
    if arguments.get("imgsz", imgsz) != imgsz:
        say("export.imgsz", f"imgsz={imgsz} in place of {arguments['imgsz']}: a multiple of the stride, as for weights")
    arguments["imgsz"] = imgsz
    images = predicting.first_images(predicting.sample_images(), _IMAGES)
    more: dict[str, Any] = {
        "batch": int(arguments.get("batch") or 1),
        "conf": _BUILT_IN_CONF if arguments.get("nms") else None,
    }
    with progress_bar(f"exporting to {engine}, then comparing with torch") as show:
        show(0, 2)
        with new_export(weights, engine, arguments, weights.parent) as product:
            show(1, 2)
            with comparison(weights, yolo.task, images, imgsz=imgsz, **more) as (_, measure):
                _judge(measure(Way(engine), product), arguments)
            put_in_place(product, weights.parent / product.name)
        return weights.parent / product.name


def _judge(row: Measured, arguments: Mapping[str, Any]) -> None:
    """Say that an exported model agrees, or raise that it does not."""
    same = f"{row.agreement:.3f} of {row.objects} objects are the same"
    if row.error:
        raise ExportError(f"the exported model does not predict, and is thrown away: {row.error}")
    if not row.objects:
        say("export.unchecked", f"not compared with torch, which finds nothing on {_IMAGES} photographs", warning=True)
    elif row.agrees:
        say("export.agrees", f"the exported model agrees with torch: {same}")
    elif arguments.get("int8") or str(arguments.get("quantize", "")) in ("8", "int8"):
        say("export.int8", f"in int8 {same} as with torch", warning=True)
    else:
        raise ExportError(
            f"the exported model does not agree with torch, and is thrown away: {same}, scores differ by up to "
            f"{row.score_difference:.2f}. `yolo-rocm bench predict MODEL.pt` shows which formats agree here."
        )
