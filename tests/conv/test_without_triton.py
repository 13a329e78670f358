"""Where Triton cannot be used: it is no candidate, the reason is told, and it is not even imported."""

from __future__ import annotations

import os
import subprocess
import sys

# Everything that goes near the engine: a planner with its tuner, the seam, the doctor's child, the words of the report.
OLD_TORCH = """
import sys
import torch
if int(torch.__version__.split(".")[0]) >= 2:
    torch.__version__ = "1.13.1"
from yolo_rocm.conv.plan import Planner
from yolo_rocm.conv.patch import Patch
from yolo_rocm.conv.seam import installed
from yolo_rocm.engines.triton.available import in_words, in_words_unasked, triton_version
from yolo_rocm.diagnosis.probe_child import main
assert triton_version() == (3, 6), "the fake is not seen"
planner = Planner("auto", remember=False)
patch = Patch(("cpu",), planner)
with installed(patch):
    x, weight = torch.randn(2, 4, 6, 6, requires_grad=True), torch.randn(5, 4, 3, 3, requires_grad=True)
    torch.nn.functional.conv2d(x, weight).sum().backward()
(route,) = patch._known.values()
timings = planner.tune([route.problem])
main(["--device", "cpu", "device,conv/triton/fp32/nchw/3x3,conv/auto/fp32/nchw/1x1", sys.argv[1]])
measured = {row.algorithm for rows in timings[route.problem].values() for row in rows}
print("measured", "windows" in measured, [name for name in measured if "triton" in name])
for words in (in_words("cpu"), in_words("cuda:0"), in_words_unasked(torch.__version__)):
    print("words", words)
print("imported", [name for name in sys.modules if name.partition(".")[0] == "triton"])
"""


def fake_triton(folder, version: str = "3.6.0"):
    """Write a package that Python finds and nobody may import."""
    (folder / "triton").mkdir()
    (folder / "triton" / "__init__.py").write_text("raise SystemExit('triton was imported')\n")
    info = folder / f"triton-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")


def test_an_old_torch_never_imports_triton(tmp_path):
    fake_triton(tmp_path)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", OLD_TORCH, str(tmp_path / "answers")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    measured, first, second, third, imported = done.stdout.splitlines()
    reason = "is older than 2.0, the first that has Triton"
    skipped = [line for line in (tmp_path / "answers").read_text().splitlines() if '"skipped"' in line]
    assert len(skipped) == 1
    assert reason in skipped[0]
    assert measured == "measured True []"
    for line in (first, second, third):
        assert line.startswith("words torch 1.13.1")
        assert line.endswith(reason)
    assert imported == "imported []"
