"""Deferred imports of loading workers."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from yolo_rocm.data.lazy_imports import DEFERRED, defer_imports, import_all
defer_imports()
defer_imports()
import_all(["torch", "no_such_module_at_all"])
import torch
waiting = [n for n in DEFERRED if type(sys.modules.get(n)).__name__ == "_DeferredModule"]
assert "torch._meta_registrations" in waiting or torch.__version__ < "2", waiting
import inspect
inspect.getmodule(inspect.currentframe())  # looks at the file of every module
assert [n for n in waiting if type(sys.modules[n]).__name__ != "_DeferredModule"] == []
if "torch.quantization" in waiting:
    assert callable(torch.quantization.quantize_dynamic)  # runs now
    assert type(sys.modules["torch.quantization"]).__name__ == "module"
x = torch.stack([torch.ones(2, 3), torch.zeros(2, 3)]).permute(1, 0, 2).contiguous()
assert x.sum() == 6
print("fine", sum(getattr(f, "__class__").__name__ == "_DeferringFinder" for f in sys.meta_path))
"""


def test_what_is_deferred_runs_when_it_is_used_and_not_before():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "fine 1", ended.stderr
