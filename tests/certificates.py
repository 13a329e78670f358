"""Certificates as `yolo-rocm certify` writes them, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yolo_rocm.preset.evidence import as_text, seal

PARTS = ("doctor", "kernels", "demo", "bench_train")


def certificate(
    kind: str = "amd",
    name: str | None = "Radeon RX 5600 XT",
    gfx: str | None = "gfx1010",
    memory_gb: float | None = 6.0,
    *,
    failed: tuple[str, ...] = (),
    preset: str = "rx5600xt",
    date: str = "2026-11-16",
    quick: bool = False,
    presents_as: str | None = None,
    triton: bool = True,
) -> dict[str, Any]:
    """Return a sealed certificate of a card; parts named in `failed` have failed, Triton's kernels may be left out."""
    tried = {name: {"error": 0.5, "allowed": 16.0} for name in ("gemm/fp32", *(["triton/fp32"] * triton))}
    part = {"summary": "well", "failures": [], "seconds": 1.0, "results": {"n": 0.1, "tried": tried}}
    return seal(
        {
            "card": {"kind": kind, "name": name, "gfx": gfx, "memory_gb": memory_gb, "presents_as": presents_as},
            "date": date,
            "parts": {each: {**part, "failures": ["it burns"] * (each in failed)} for each in PARTS},
            "preset": {"name": preset, "engine": "gemm", "vendor": "off"},
            "quick": quick,
            "seconds": 5.0,
            "stack": {
                "system": "linux", "machine": "x86_64", "python": "3.10.1", "torch": "2.10.0", "triton": "3.6.0",
                "yolo_rocm": "0.1.0", "hip": "7.0.1" if kind == "amd" else None,
            },
        }
    )  # fmt: skip


def write(folder: Path, name: str, data: dict[str, Any]) -> Path:
    """Write a certificate to a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(as_text(data), encoding="utf-8")
    return folder / name
