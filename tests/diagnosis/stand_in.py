"""A stand-in for the process that probes a device, and the shape of what the doctor says about one."""

from __future__ import annotations

CHILD = """
import json, sys
bad = {bad!r}
answers = open(sys.argv[-1], "a")
def say(**line):
    print(json.dumps(line), file=answers, flush=True)
for name in sys.argv[-2].split(","):
    say(probe=name, begin=True)
    if name.startswith(tuple(bad)) if bad else False:
        {act}
    say(probe=name, error=0.0, detail=dict(name="AMD") if name == "device" else dict())
"""
SKIPS = 'say(probe=name, skipped="no such card"); continue'
RAISES = 'say(probe=name, message="RuntimeError: miopenStatusUnknownError"); continue'

SCHEMA = {
    "schema": 1,
    "version": str,
    "verdict": {"text": str, "next": str, "works": bool, "preset": str, "code": int},
    "machine": {
        **dict.fromkeys(("system", "python", "torch", "build"), str),
        **dict.fromkeys(("kernel", "distribution", "hip", "rocm", "amdgpu", "ultralytics", "ram_gb", "shm_gb"), object),
        "overlays": list,
        "packages": dict,
        "gpus": list,
        "cores": int,
        "archs": list,
        "rocblas_archs": list,
    },
    "preset": {"preset": str, "why": str, "values": dict, "notes": list},
    "findings": list,
    "probes": list,
    "vendor": {"conv": dict, "norm": dict},
    "triton": str,
    "hip": str,
}
FINDING_KEYS = {"id", "severity", "finding", "remedy", "sources"}
PROBE_KEYS = {"name", "status", "message", "error", "seconds", "detail"}
GPU_KEYS = {"name", "vendor", "gfx", "presents_as", "vram_gb", "integrated", "hidden_by"}


def fits(data, schema) -> bool:
    if isinstance(schema, dict):
        return set(data) == set(schema) and all(fits(data[key], schema[key]) for key in schema)
    return isinstance(data, schema) if isinstance(schema, type) else data == schema
