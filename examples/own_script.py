"""A script that has never heard of yolo_rocm, and trains under the preset of this machine's card.

It is started like this, with arguments of its own, and nothing in it changes:

    yolo-rocm run examples/own_script.py my_data.yaml
"""

import sys

from ultralytics import YOLO

if __name__ == "__main__":
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8.yaml"
    metrics = YOLO("yolo11n.yaml").train(data=data, epochs=1, imgsz=64, plots=False)
    print(f"mAP50-95 {metrics.box.map:.3f}")
