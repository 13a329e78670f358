"""What `yolo-rocm certify` found on cards, from the files in configs/evidence."""

from __future__ import annotations

from collections import Counter
from typing import Final

from yolo_rocm.hardware import family_of
from yolo_rocm.preset.evidence import Card, Evidence, evidence_folder, evidence_for, newest_first, read_evidence
from yolo_rocm.preset.schema import Preset

from .markdown import code, escaped, joined, table

NOBODY: Final = "no"
_PAGE: Final = "docs/tested.md#certified-cards"


def shipped_evidence() -> list[Evidence]:
    """Return all evidence that is shipped, newest first.

    Raises:
        EvidenceError: A file does not verify.
    """
    return newest_first(map(read_evidence, sorted(evidence_folder().glob("*.json"))))


def run_on_such_cards(presets: list[Preset], family: str | None) -> str:
    """Say on which cards of their family presets ran, or a preset that is for no family on what it is for.

    Args:
        presets: The presets of a family, or one of none.
        family: `rdna1` and so on, or None.
    """
    known = shipped_evidence()
    if family is not None:
        names = {preset.name for preset in presets}
        fitting = (each for each in known if not each.data.quick and _row_of(each.data.card) == family)
        own = [each for each in fitting if each.data.preset.name in names]
    else:
        own = [each for preset in presets for each in evidence_for(preset.name, preset.match.model_dump(), among=known)]
    numbers = Counter(map(_in_short, own))
    files = {short: f"{number} file{'s' * (number > 1)}" for short, number in numbers.items()}
    return joined(f"[{escaped(short)} ({files[short]})]({_PAGE})" for short in numbers) or NOBODY


def _in_short(evidence: Evidence) -> str:
    data = evidence.data
    ours = "" if data.card.kind == "amd" else ", with our engines,"
    return f"{data.card.in_words}{ours} {'failed' if data.failed else 'passed'}"


def _row_of(card: Card) -> str | None:
    """Return the family that a row is for: all of CDNA have one."""
    family = family_of(card.gfx) if card.kind == "amd" else None
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
    stack = data.stack
    kernels, training = (
        "; ".join(data.parts[name].summary for name in names if name in data.parts)
        for names in (("kernels", "norms"), ("training", "demo"))
    )
    versions = {"torch": stack.torch, "ROCm": stack.hip, "CUDA": stack.cuda, "driver": stack.driver}
    versions |= {"Triton": stack.triton, "Ultralytics": stack.ultralytics, "yolo_rocm": stack.yolo_rocm}
    quick = "; a quick run, which proves nothing" if data.quick else ""
    told = " ".join(word for word in ("+".join(stack.overlays) or stack.system, stack.machine) if word)
    return (
        f"[{escaped(data.card.in_words)}](../configs/evidence/{evidence.file})",
        code(data.card.gfx) if data.card.gfx else "-",
        data.date,
        escaped(told),
        escaped(joined(f"{name} {version}" for name, version in versions.items() if version)),
        escaped(kernels),
        escaped(training),
        escaped(f"{data.verdict}{quick}"),
    )
