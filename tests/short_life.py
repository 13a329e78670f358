"""The short life of a model on a CPU whose native convolutions all raise: train, val, predict, opened without us.

Run as a script, with this package and one Ultralytics importable: `python tests/short_life.py`. The last line of its
output says in JSON what it ran on; a failure ends it with a traceback. `.ci/ladder` runs it on many versions.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULT = "SHORT LIFE "
SIZE = 32
PREDICT = {"imgsz": SIZE, "device": "cpu", "verbose": False, "conf": 0.001}
PLAIN = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "yolo_rocm":
            raise ModuleNotFoundError(f"{name} must not be needed")

sys.meta_path.insert(0, Refuse())
from ultralytics import YOLO
result = YOLO(sys.argv[1]).predict(sys.argv[2], **json.loads(sys.argv[3]))[0]
assert "yolo_rocm" not in sys.modules
print("BOXES", json.dumps(result.boxes.data.tolist()))
"""


def expect(fact: Any, words: str) -> Any:
    """End the life if something is not as it must be."""
    if not fact:
        raise SystemExit(f"short life: {words}")
    return fact


def live(folder: Path) -> dict[str, Any]:
    """Live it in a folder, and return what it ran on."""
    import torch
    import ultralytics
    from sick_vendor import MESSAGE, sick_vendor
    from ultralytics import YOLO

    import yolo_rocm
    from yolo_rocm.bench.demo_data import make_data
    from yolo_rocm.ultralytics_hooks.probes import all_missing, asked

    rocm = {"conv": {"engine": "gemm", "devices": ["cpu"]}}
    data = make_data(folder / "data", images=8, size=SIZE)
    image = str(sorted((data.parent / "images" / "val").glob("*.jpg"))[0])
    run = {"epochs": 1, "imgsz": SIZE, "batch": 4, "plots": False, "device": "cpu", "verbose": False}
    with sick_vendor():
        yolo_rocm.train("yolov8n.yaml", data, "cpu", rocm, project=str(folder), name="run", **run)
        best = expect(next(folder.glob("run/weights/best.pt"), None), "no best.pt")
        expect(len((folder / "run" / "results.csv").read_text().splitlines()) == 2, "not one epoch of results")
        yolo = YOLO(best)
        handle = yolo_rocm.register(yolo, "cpu", rocm)
        metrics = yolo.val(data=str(data), imgsz=SIZE, device="cpu", plots=False, project=str(folder))
        expect(metrics.results_dict, "val returned no metrics")
        (ours,) = yolo.predict(image, **PREDICT)
        expect(set(handle.report.engines()) == {"gemm"}, f"computed by {handle.report.engines()}")
        handle.remove()
        try:
            yolo.predict(image, **PREDICT)
            raise SystemExit("short life: the vendor was not sick, so nothing is proved")
        except RuntimeError as error:
            expect(MESSAGE in str(error), f"stock died of something else: {error}")
    command = [sys.executable, "-c", PLAIN, str(best), image, json.dumps(PREDICT)]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    expect(plain.returncode == 0, f"the checkpoint does not open plain: {plain.stderr[-2000:]}")
    boxes = torch.tensor(json.loads(plain.stdout.partition("BOXES ")[2]))
    expect(boxes.numel(), "a plain prediction finds nothing, so nothing is compared")
    torch.testing.assert_close(ours.boxes.data, boxes, rtol=1e-4, atol=1e-4)
    return {
        "ultralytics": ultralytics.__version__,
        "torch": torch.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "without": sorted(all_missing()),
        "asked": asked(),
    }


def main() -> None:
    """Live the short life in a folder that is removed, with settings of its own and no network."""
    started = time.perf_counter()
    # Not cleaned by force: a loader's thread may still hold a file on Windows.
    with tempfile.TemporaryDirectory(prefix="yolo_rocm_life_", ignore_cleanup_errors=True) as name:
        os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_CONFIG_DIR=name, YOLO_ROCM_CACHE=name)
        os.environ["OMP_NUM_THREADS"] = "1"  # threads gain nothing here, and cost much on a busy machine
        facts = live(Path(name))
    facts["seconds"] = round(time.perf_counter() - started, 1)
    sys.stdout.write(f"{RESULT}{json.dumps(facts)}\n")


if __name__ == "__main__":
    main()
