"""The file next to `last.pt` with what it lacks: weights in fp32, gradients, random states, the loader's position.

It belongs to exactly one checkpoint, by size and checksum. The new one gets its own name only after the new checkpoint
has; until then it is kept under another one. Whatever a crash leaves, each whole checkpoint has its whole companion.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

from ..utils.atomic import removed_on_error

FORMAT: Final = 2
STATE_FILE: Final = "last.resume.pt"
_NEXT_FILE: Final = "last.resume.next.pt"


def _mark_of(checkpoint: bytes) -> list[int]:
    return [len(checkpoint), zlib.crc32(checkpoint)]


class StateFile:
    """The state next to the checkpoints of one folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self._next = folder / STATE_FILE, folder / _NEXT_FILE

    def stage(self, state: Mapping[str, Any], checkpoint: bytes) -> None:
        """Write the state that belongs to a checkpoint which is about to get its name.

        Not waited for until the disk has it: after a power failure a damaged state is noticed, and not used.
        """
        buffer = io.BytesIO()  # torch 1.13 aborts the process where its own file does not fit on the disk
        torch.save({"format": FORMAT, "checkpoint": _mark_of(checkpoint), **state}, buffer)
        with removed_on_error(self._next):
            self._next.write_bytes(buffer.getbuffer())

    def commit(self) -> None:
        """Put the staged state in the place of the one before: its checkpoint has its name now."""
        with suppress(OSError):  # it is found under its other name too
            os.replace(self._next, self.path)

    def remove(self) -> bool:
        """Remove all states; return whether any was."""
        removed = False
        for path in (self._next, self.path):
            with suppress(OSError):
                path.unlink()
                removed = True
        return removed

    def find(self, checkpoint: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the state that belongs to a checkpoint, or None and why not; no reason where there is no state."""
        files = [path for path in (self.path, self._next) if path.is_file()]
        wanted, reason = _mark_of(checkpoint.read_bytes()) if files else None, ""
        for path in files:
            try:
                # Pickled, as the checkpoint next to it is: whoever resumes from that folder trusts it.
                state = torch.load(path, map_location="cpu", weights_only=False)
                if state["format"] != FORMAT:
                    reason = f"another version of this package wrote {path.name}"
                elif state["checkpoint"] == wanted:
                    return state, ""
                else:
                    reason = reason or f"{path.name} belongs to another checkpoint"
            except Exception as error:  # torch raises whatever the damage leads to
                reason = f"{path.name} is damaged ({type(error).__name__})"
        return None, reason
