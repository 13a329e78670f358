"""Train under the preset of this machine's card: one line instead of Ultralytics' own."""

import sys

import yolo_rocm

if __name__ == "__main__":  # data-loading workers import this file again
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8.yaml"
    metrics = yolo_rocm.train("yolo11n.yaml", data=data, preset="auto", epochs=1, imgsz=64, plots=False)
    print(f"mAP50-95 {metrics.box.map:.3f}")
