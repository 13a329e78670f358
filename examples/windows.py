"""A script that is safe on Windows, where every data-loading worker starts a new Python and imports this file.

Linux runs it unchanged.
"""

import sys

import yolo_rocm

# 1. This part runs in every worker too: only imports, constants, functions and classes.
EPOCHS = 1


def main(data: str) -> None:
    # 2. The number of workers: 0 loads in this process, which is always safe and what a preset does on Windows unless
    #    asked. Ask for a few where loading is slow; each one is a process with memory of its own.
    workers = 2
    metrics = yolo_rocm.train("yolo11n.yaml", data=data, epochs=EPOCHS, imgsz=32, batch=2, plots=False, workers=workers)
    print(f"mAP50-95 {metrics.box.map:.3f}")


# 3. The guard: True in the script that you start, False in its workers. Without it each worker would start a training
#    of its own; yolo_rocm finds that out beforehand and says so.
if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "coco8.yaml")
