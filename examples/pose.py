"""Pose: a model whose name ends in -pose, and a data set with key points. Everything else stays as it is."""

import sys

import yolo_rocm

if __name__ == "__main__":  # data-loading workers import this file again
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8-pose.yaml"
    metrics = yolo_rocm.train("yolo11n-pose.yaml", data=data, epochs=1, imgsz=64, plots=False)
    print(f"mAP50-95 of boxes {metrics.box.map:.3f}, of key points {metrics.pose.map:.3f}")
