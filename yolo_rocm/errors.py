"""Errors for mistakes a user can correct; each message says what, what was got, what is allowed and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class YoloRocmError(Exception):
    """Base of every error this package raises on purpose."""


class PresetError(YoloRocmError, ValueError):
    """A preset, a `rocm` section or a value in one of them is wrong."""


class ConfigError(YoloRocmError, ValueError):
    """A configuration file or command-line argument is wrong."""


class EvidenceError(ConfigError):
    """A file of `yolo-rocm certify` cannot be read, or was edited."""


class MissingFileError(ConfigError, FileNotFoundError):
    """A model or a data set that an argument names is not there."""


class DownloadError(YoloRocmError, ConnectionError):
    """Something that Ultralytics wanted to download did not come."""


class EngineError(YoloRocmError, RuntimeError):
    """The engine that was asked for cannot compute a convolution, or predict."""


class ExportError(YoloRocmError, RuntimeError):
    """A model cannot be exported, or what was exported does not predict what the model does."""


class DeviceLostError(YoloRocmError, RuntimeError):
    """A GPU has stopped responding in this process; the message says since when and how to go on."""


class LostRankError(YoloRocmError, RuntimeError):
    """Another process of a training of several has gone; the message says what is whole and how to go on."""


class StackError(YoloRocmError, RuntimeError):
    """The installed torch or Ultralytics is missing, too old, or lacks something the package builds on."""


class LoaderError(YoloRocmError, RuntimeError):
    """Batches cannot be loaded; the message says why and what to change."""


class CheckpointError(YoloRocmError, OSError):
    """A checkpoint, or the folder of a run, cannot be written; the message says what is whole and how to go on."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the allowed word closest to `word`, or a full stop."""
    matches = difflib.get_close_matches(str(word), [str(a) for a in allowed], n=3, cutoff=0.6)
    # Two letters changed places: `modle` is nearer to `model` than to `mode`.
    matches.sort(key=lambda match: sorted(match) != sorted(str(word)))
    return f"; did you mean '{matches[0]}'?" if matches else "."
