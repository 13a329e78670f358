"""`yolo-rocm env`: versions, card and system, ready to paste into an issue."""

from __future__ import annotations

from ..utils.console import print_json
from .options import AsJson, say


def env(as_json: AsJson = False) -> None:
    """Print versions, card, system and variables, ready to paste into an issue: names and secrets are taken out."""
    from ..diagnosis.versions import versions
    from ..hardware import detect

    found = versions(detect())
    if as_json:
        print_json(found)
        return
    width = max(map(len, found)) + 2
    say("```text", *(f"{name:{width}}{value}" for name, value in found.items()), "```")
