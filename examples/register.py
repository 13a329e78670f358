"""Keep your own Ultralytics code and register the YOLO object you already have."""

import sys

from ultralytics import YOLO

import yolo_rocm

if __name__ == "__main__":  # data-loading workers import this file again
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8.yaml"
    yolo = YOLO("yolo11n.yaml")
    handle = yolo_rocm.register(yolo, preset="rx5600xt")
    yolo.train(data=data, epochs=1, imgsz=64, plots=False)
    if handle.report is not None:
        print(handle.report.table())
    handle.remove()
