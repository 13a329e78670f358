"""`python -m yolo_rocm.inference.export_child SETTINGS ANSWER`: one export, on the CPU unless it is told otherwise."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ..errors import ExportError
from ..ultralytics_hooks import predicting, versions
from ..utils.child_process import answer_parent


def main(settings: dict[str, Any]) -> dict[str, Any]:
    """Export and return where the product is.

    Args:
        settings: `weights`, `format`, `arguments`, and the `folder` that the product is alone in.
    """
    folder, weights = Path(settings["folder"]), Path(settings["weights"])
    work = folder / "work"
    work.mkdir()
    os.chdir(work)  # exporters leave files where they are started
    # Ultralytics writes next to the weights, and reads the name of the product from theirs.
    copy = work / weights.name
    shutil.copyfile(weights, copy)
    versions.require()
    made = predicting.export_weights(copy, settings["format"], dict(settings["arguments"]))
    made = made if made.is_absolute() else work / made
    if not made.exists() or (made.is_dir() and not any(made.iterdir())):
        raise ExportError("Ultralytics has written nothing, see its own words above")
    product = folder / made.name
    os.replace(made, product)
    os.chdir(folder)
    shutil.rmtree(work)
    return {"file": str(product)}


if __name__ == "__main__":
    answer_parent(main)
