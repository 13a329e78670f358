"""Train on two GPUs where there are two; `device` is all that changes.

Ultralytics starts one process for each GPU, and every one of them runs under the preset. The same from the shell, by
PyTorch's own launcher, which also spans several machines (--nnodes, --rdzv-endpoint):

    torchrun --nproc_per_node 2 -m yolo_rocm train cfg.yaml
"""

import sys

import torch

import yolo_rocm


def devices() -> str:
    count = torch.cuda.device_count()  # AMD GPUs count as "cuda" in PyTorch
    if count >= 2:
        return "0,1"
    print(f"found {count} GPU(s), two are needed: training on {'one' if count else 'the CPU'} instead")
    return "0" if count else "cpu"


if __name__ == "__main__":  # the processes for the GPUs, and data-loading workers, import this file again
    data = sys.argv[1] if len(sys.argv) > 1 else "coco8.yaml"
    # batch is the number of images of one step on all GPUs together
    metrics = yolo_rocm.train("yolo11n.yaml", data=data, device=devices(), batch=4, epochs=1, imgsz=32, plots=False)
    print(f"mAP50-95 {metrics.box.map:.3f}")
