"""Known failures and the doctor's checks."""

from __future__ import annotations

from typing import Final

from yolo_rocm.diagnosis import checks_environment, checks_packages, checks_stack, checks_system
from yolo_rocm.diagnosis.known_failures import LEVELS, Signature, signatures

from .markdown import code, first_paragraph, slug, table

_LEVELS: Final = {
    "cause": ("Causes", "Each of these is one thing to repair."),
    "symptom": ("Symptoms", "Several causes look like these."),
    "note": ("Notes", "Nothing is broken by these."),
}


def failures() -> str:
    """Return every known failure: first an index by what a log shows, then each with cause and remedy."""
    known = signatures()
    index = table(
        ("a log shows", "see"),
        ((code(_short(entry)), f"[{entry.id}](#{slug(entry.id)})") for entry in known),
    )
    parts = [f"{len(known)} failures are known.", index]
    for level in LEVELS:
        title, words = _LEVELS[level]
        parts += [f"## {title}", words]
        parts += [_entry(entry) for entry in known if entry.level == level]
    return "\n\n".join(parts)


def _short(entry: Signature) -> str:
    text = " ".join(entry.samples[0].split())
    return text if len(text) <= 90 else text[:87] + "..."


def _entry(entry: Signature) -> str:
    sources = ", ".join(_source(source) for source in entry.sources)
    samples = "\n".join(entry.samples)
    return (
        f"### {entry.id}\n\n```text\n{samples}\n```\n\n"
        f"{_plain(entry.cause)}\n\nWhat to do: {_plain(entry.remedy)}\n\n"
        f"Known from: {sources} ({entry.confidence}; {entry.where})."
    )


def _plain(text: str) -> str:
    """Return text whose angle brackets and stars are not taken for HTML or emphasis outside of code."""
    parts = text.strip().split("`")
    outside = (part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2])
    return "`".join(word for pair in zip(outside, [*parts[1::2], ""], strict=False) for word in pair).removesuffix("`")


def _source(source: str) -> str:
    address, _, path = source.partition(" ")
    label = address.removeprefix("https://").removeprefix("github.com/").rstrip("/")
    return f"[{label}]({address})" + (f" {code(path)}" if path else "")


def checks() -> str:
    """Return what the doctor looks at before it asks the card, by the question each group of checks answers."""
    parts = []
    for module in (checks_packages, checks_stack, checks_system, checks_environment):
        rows = ((code(check.__name__.replace("_", "-")), first_paragraph(check)) for check in module.CHECKS)
        parts += [f"### {first_paragraph(module)}", table(("check", "why"), rows)]
    return "\n\n".join(parts)
