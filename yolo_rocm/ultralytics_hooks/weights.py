"""Which file holds the weights that a YOLO object has in memory; one is written where none does."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import ExportError
from .models import load_model

# Of a model's last layer: what they change, no tensor shows.
_HEAD: Final = ("nc", "nl", "reg_max", "end2end", "max_det", "agnostic_nms")


@dataclass(frozen=True)
class WeightsFile:
    """A file as it was when its weights were found to be those in memory."""

    path: Path
    mtime_ns: int
    size: int

    @classmethod
    def at(cls, path: Path) -> WeightsFile | None:
        """Return the file as it is now; None where there is none."""
        try:
            stat = path.stat()
        except OSError:
            return None
        return cls(path, stat.st_mtime_ns, stat.st_size)


class MemoryWeights:
    """Follows the weights of one YOLO object, and knows a file that holds the same.

    A file is compared tensor by tensor. After that it costs nothing to see that nothing has changed: torch counts the
    writes to a tensor, and another tensor is another object. Writes through `.data` are not counted.
    """

    def __init__(self) -> None:
        self._seen: _Seen | None = None
        self._file: WeightsFile | None = None
        self._forget: weakref.finalize[..., Any] | None = None

    def file(self, yolo: Any) -> WeightsFile:
        """Return a file with the weights in memory: one of the object's own, or one that is written to a new folder.

        Raises:
            ExportError: There is none, and none can be written.
        """
        model = yolo.model
        known = self._file
        if known is None or self._seen is None or not self._seen.are_of(model) or WeightsFile.at(known.path) != known:
            self._seen = None
            seen = _Seen(model)  # before the comparison: what changes during it is seen the next time
            self._file = next((file for file in _candidates(yolo) if _holds(file.path, yolo)), None) or self._save(yolo)
            self._seen = seen
        assert self._file is not None
        return self._file

    def _save(self, yolo: Any) -> WeightsFile:
        import torch

        self.close()
        folder = tempfile.mkdtemp(prefix="yolo-rocm-weights-")
        self._forget = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # Some kinds of models are told by their file's name.
        named = (
            getattr(yolo, "ckpt_path", None) or getattr(yolo.model, "yaml_file", None) or yolo.overrides.get("model")
        )
        path = Path(folder) / f"{Path(str(named or 'model')).stem}.pt"
        try:
            arguments = {"task": yolo.task, "imgsz": yolo.overrides.get("imgsz") or 640}
            with torch.no_grad():  # in fp32: Ultralytics' own save() rounds to fp16
                torch.save({"model": copy.deepcopy(yolo.model).cpu().float(), "train_args": arguments}, path)
        except Exception as error:  # what a user has put into the model may refuse to be copied or pickled
            self.close()
            raise ExportError(f"the weights in memory cannot be saved: {type(error).__name__}: {error}") from error
        made = WeightsFile.at(path)
        assert made is not None
        return made

    def close(self) -> None:
        """Remove what was written."""
        if self._forget is not None:
            self._forget()
        self._forget = self._file = self._seen = None


class _Seen:
    """The tensors of a model and what else decides about its results, as they were at one moment.

    The tensors' memory is held, so that no other tensor can come to be at the same address.
    """

    def __init__(self, model: Any) -> None:
        self._facts = _facts(model)
        self._tensors = [(_held(tensor), _writes(tensor)) for tensor in _tensors(model).values()]

    def are_of(self, model: Any) -> bool:
        """Return whether a model still is what was seen."""
        now = list(_tensors(model).values())
        return (
            len(now) == len(self._tensors)
            and _facts(model) == self._facts
            and all(_is_same(tensor, *then) for tensor, then in zip(now, self._tensors, strict=True))
        )


def _held(tensor: Any) -> Any:
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _writes(tensor: Any) -> int | None:
    """Return torch's count of writes to a tensor; None for those made in inference mode, which have none."""
    return None if tensor.is_inference() else int(tensor._version)


def _is_same(tensor: Any, held: Any, writes: int | None) -> bool:
    import torch

    if (tensor.dtype, tensor.device, tensor.shape) != (held.dtype, held.device, held.shape):
        return False
    if writes is None:
        return torch.equal(tensor, held)
    return bool(tensor.data_ptr() == held.data_ptr() and _writes(tensor) == writes)


def _tensors(model: Any) -> dict[str, Any]:
    """Return parameters, buffers and the model's own tensors, such as what `set_classes` leaves."""
    import torch

    own = ((name, value) for name, value in vars(model).items() if isinstance(value, torch.Tensor))
    return {**dict(model.named_parameters()), **dict(model.named_buffers()), **dict(own)}


def _facts(model: Any) -> tuple[Any, ...]:
    """Return what decides about results beside tensors: classes, kinds of modules, the head."""
    layers = getattr(model, "model", None)
    head = layers[-1] if layers is not None and len(layers) else None
    kinds = tuple(type(module) for module in model.modules())
    return repr(getattr(model, "names", None)), kinds, tuple(str(getattr(head, name, None)) for name in _HEAD)


def _candidates(yolo: Any) -> Iterator[WeightsFile]:
    """Yield the files that the weights may have come from: loaded, or written by a training of the object."""
    trainer = getattr(yolo, "trainer", None)
    names = [getattr(yolo.model, "pt_path", None), getattr(yolo, "ckpt_path", None)]
    names += [getattr(trainer, "best", None), getattr(trainer, "last", None)]
    for path in dict.fromkeys(Path(str(name)).absolute() for name in names if name):
        found = WeightsFile.at(path) if path.suffix == ".pt" and path.is_file() else None
        if found is not None:
            yield found


def _holds(file: Path, yolo: Any) -> bool:
    """Return whether a file, loaded as Ultralytics does it, is what is in memory; fused and in fp16 too."""
    import torch

    model = yolo.model
    try:
        kept = load_model(file, yolo.task).model
        with torch.no_grad():
            if _agree(model, kept):
                return True
            # Ultralytics fuses on the device, and some releases do it to the object's own model.
            device = next(model.parameters()).device
            return _agree(model, kept.to(device).fuse(verbose=False))
    except Exception:  # no file of Ultralytics, or of another release, or damaged
        return False


def _agree(model: Any, kept: Any) -> bool:
    mine, other = _tensors(model), _tensors(kept)
    if mine.keys() != other.keys() or _facts(model) != _facts(kept) or repr(model) != repr(kept):
        return False
    return any(all(_equal(mine[name], other[name], half) for name in mine) for half in (False, True))


def _equal(mine: Any, other: Any, half: bool) -> bool:
    """Return whether a tensor is that of a file; with `half` after its way through fp16, which rounds."""
    import torch

    if half and other.is_floating_point():
        other = other.half()
    return mine.shape == other.shape and torch.equal(mine, other.to(mine.device, mine.dtype))
