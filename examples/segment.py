"""Segmentation: a model whose name ends in -seg, and a data set with outlines. Everything else stays as it is."""

import sys

import yolo_rocm

if __name__ == "__main__":  # data-loading workers import this file again
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8-seg.yaml"
    metrics = yolo_rocm.train("yolo11n-seg.yaml", data=data, epochs=1, imgsz=64, plots=False)
    print(f"mAP50-95 of boxes {metrics.box.map:.3f}, of masks {metrics.seg.map:.3f}")
