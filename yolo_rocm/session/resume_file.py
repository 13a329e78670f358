"""The file beside `last.pt` that lets a training go on as if it had never been stopped.

It belongs to exactly one checkpoint, by size and checksum. The new one gets its own name only after the new checkpoint
has; until then it lies beside the old one. Whatever a crash leaves, each whole checkpoint has its whole companion.
"""

from __future__ import annotations

import io
import os
import random
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from ..utils.atomic import removed_on_error

FORMAT: Final = 1
STATE_FILE: Final = "last.resume.pt"
_NEXT_FILE: Final = "last.resume.next.pt"
# What going on exactly needs, and what is needed of its parts; `loader` may be None.
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("model", "ema", "scaler", "gradients", "criterion", "stopper", "facts"), ()),
    "optimizer": ("state", "param_groups"),
    "trainer": ("best_fitness", "fitness", "metrics", "accumulate"),
    "random": ("python", "numpy", "torch"),
}


@dataclass(frozen=True)
class Found:
    """What was found beside a checkpoint: a state, or the reason why there is none to use."""

    state: dict[str, Any] | None
    reason: str = ""


def mark_of(data: bytes | memoryview) -> list[int]:
    """Return what identifies the bytes of a checkpoint."""
    return [len(data), zlib.crc32(data)]


class StateFile:
    """The state beside the checkpoints of one folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self._next = folder / STATE_FILE, folder / _NEXT_FILE

    def stage(self, state: Mapping[str, Any], checkpoint: bytes) -> None:
        """Write the state that belongs to a checkpoint which is about to get its name.

        Not waited for until the disk has it: after a power failure a damaged state is noticed, and not used.
        """
        buffer = io.BytesIO()  # torch 1.13 aborts the process where its own file does not fit on the disk
        torch.save(_coded({"format": FORMAT, "checkpoint": mark_of(checkpoint), **state}), buffer)
        with removed_on_error(self._next):
            self._next.write_bytes(buffer.getbuffer())

    def commit(self) -> None:
        """Put the staged state in the place of the one before: its checkpoint has its name now."""
        if self._next.exists():
            os.replace(self._next, self.path)

    def remove(self) -> bool:
        """Remove all states; tell whether there was one."""
        found = [path for path in (self._next, self.path) if path.exists()]
        for path in found:
            with suppress(OSError):
                path.unlink()
        return bool(found)

    def find(self, checkpoint: Path) -> Found:
        """Return the state that belongs to a checkpoint."""
        candidates = [path for path in (self.path, self._next) if path.is_file()]
        if not candidates:
            return Found(None, f"there is no {STATE_FILE} beside it")
        wanted, reason = mark_of(checkpoint.read_bytes()), ""
        for path in candidates:
            try:
                # Tensors and plain data only: nothing in the file can run code.
                state = _decoded(torch.load(path, map_location="cpu", weights_only=True))
                if state["checkpoint"] == wanted and state["format"] == FORMAT:
                    return Found(state)
                reason = reason or f"{path.name} belongs to another checkpoint"
            except Exception as error:  # torch raises whatever the damage leads to
                reason = f"{path.name} is damaged ({type(error).__name__})"
        return Found(None, reason)


def lacks(state: Mapping[str, Any]) -> str:
    """Say what a state lacks that going on exactly needs; nothing if it is whole. Another version may write less."""
    missing = [name for name in ("updates", "last_step", "loader") if name not in state]
    for part, names in _PARTS.items():
        found = state.get(part)
        if not isinstance(found, Mapping):
            missing.append(part)
        else:
            missing += [f"{part}.{name}" for name in names if name not in found]
    return f"{STATE_FILE} lacks {', '.join(missing)}" if missing else ""


def _coded(value: Any) -> Any:
    """Write floats and large integers as words: the safe loader of torch 1.13 reads neither."""
    if type(value) is float:
        return f"float:{value.hex()}"
    if type(value) is int and abs(value) >= 2**31:
        return f"int:{value}"
    return _each(value, _coded)


def _decoded(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("float:"):
        return float.fromhex(value[len("float:") :])
    if isinstance(value, str) and value.startswith("int:"):
        return int(value[len("int:") :])
    return _each(value, _decoded)


def _each(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: convert(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(convert(item) for item in value)
    return value


def random_states() -> dict[str, Any]:
    """Return the states of the generators of Python, numpy and torch, as tensors and plain data."""
    version, words, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state()
    states: dict[str, Any] = {
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), int(place), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Set all generators to states from `random_states`."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), place, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    devices = states.get("cuda")
    if devices and torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(devices)
