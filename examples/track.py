"""Follow objects through a video, frame by frame, under the preset of this machine's card.

The first argument is a video, the second are weights:

    python examples/track.py street.mp4 best.pt
"""

import sys

from ultralytics import YOLO

import yolo_rocm

if __name__ == "__main__":
    video = sys.argv[1]
    yolo = YOLO(sys.argv[2] if len(sys.argv) > 2 else "yolo11n.pt")
    yolo_rocm.register(yolo)
    frames, seen = 0, set()
    for result in yolo.track(video, stream=True, verbose=False):  # one frame in memory at a time
        frames += 1
        if result.boxes.id is not None:  # nothing is followed in this frame
            seen.update(result.boxes.id.int().tolist())
    print(f"{frames} frames, {len(seen)} objects")
