"""Ways with times and memory that nobody has measured, and their names."""

from __future__ import annotations

from yolo_rocm.bench.peak import Peak
from yolo_rocm.bench.way import Way

BOTH = {kind: [f"{kind} NCHW", f"{kind} channels_last"] for kind in ("stock", "vendor off", "ours")}


def made(kind: str, channels_last: bool, times: list[float], peak: float) -> Way:
    peaks = [Peak(peak - 1, peak - 40, 5 * peak + 400), Peak(peak, peak - 50, 2 * peak)]
    way = Way(kind, channels_last, turns_ms=[times] if times else [], peaks=peaks, losses=[5.0, 4.0, 3.0, 2.0])
    way.of_preset = kind == "ours"
    return way
