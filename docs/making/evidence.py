"""What `yolo-rocm certify` found on cards, from the files in configs/evidence."""

from __future__ import annotations

from typing import Any

from yolo_rocm.preset.evidence import Evidence, evidence_for, shipped_evidence
from yolo_rocm.preset.schema import Preset

from .markdown import code, joined, table

NOBODY = "no"


def run_on_such_cards(presets: list[Preset], family: str | None) -> str:
    """Say who ran presets on cards of their family, or a preset that is for no family on what it is for.

    Args:
        presets: The presets of a family, or one of none.
        family: `rdna1` and so on, or None.
    """
    known = shipped_evidence()
    if family is not None:
        own = [each for each in known if each.counts and _row_of(each.family) == family]
    else:
        own = [each for preset in presets for each in evidence_for(preset.name, preset.match.model_dump(), among=known)]
    return joined(_link(each, "configs/evidence", each.words()) for each in own) or NOBODY


def _row_of(family: str | None) -> str | None:
    """Return the family that a row is for: all of CDNA have one."""
    return "cdna" if family is not None and family.startswith("cdna") else family


def certificates() -> str:
    """Return a row for each file."""
    known = shipped_evidence()
    if not known:
        return "No file has been sent."
    heads = ("card", "target", "date", "system", "stack", "kernels", "training", "result")
    return table(heads, map(_row, known))


def _row(evidence: Evidence) -> tuple[str, ...]:
    data = evidence.data
    stack, kernels, training = data.stack, data.parts.get("kernels"), data.parts.get("training")
    versions = {"torch": stack.torch, "ROCm": stack.hip, "CUDA": stack.cuda, "driver": stack.driver}
    versions |= {"Triton": stack.triton, "Ultralytics": stack.ultralytics, "yolo_rocm": stack.yolo_rocm}
    quick = "; a quick run, which proves nothing" if data.quick else ""
    return (
        _link(evidence, "../configs/evidence", str(data.card)),
        code(data.card.gfx) if data.card.gfx else "-",
        data.date,
        " ".join(word for word in ("+".join(stack.overlays) or stack.system, stack.machine) if word),
        joined(f"{name} {version}" for name, version in versions.items() if version),
        kernels.summary if kernels is not None else "-",
        training.summary if training is not None else "-",
        f"{data.verdict.text}{quick}",
    )


def _link(evidence: Evidence, folder: str, words: Any) -> str:
    return f"[{words}]({folder}/{evidence.file})"
