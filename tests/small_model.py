"""Networks of few layers: a short training spends its time on modules, which are built, copied and saved."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

# All kinds of layers that a backbone has: strided, wide, pointwise, depthwise.
SMALL = """
nc: 4
kpt_shape: [4, 3]
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C2f, [16, True]]
  - [-1, 1, DWConv, [32, 3, 2]]
head:
  - {head}
"""
HEADS = {
    "detect": "[[2, 3], 1, Detect, [nc]]",
    "segment": "[[2, 3], 1, Segment, [nc, 4, 8]]",
    "pose": "[[2, 3], 1, Pose, [nc, kpt_shape]]",
    "obb": "[[2, 3], 1, OBB, [nc, 1]]",
    "classify": "[-1, 1, Classify, [nc]]",
}


@lru_cache
def small_model(task: str = "detect") -> str:
    """Write the file of a model for a task and return its path, which child processes can read too."""
    file = Path(tempfile.mkdtemp(prefix="small_model_")) / "small.yaml"  # its path is in checkpoints
    file.write_text(SMALL.replace("{head}", HEADS[task]), encoding="utf-8")
    return str(file)
