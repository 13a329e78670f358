"""Which file holds the weights that a YOLO object has in memory; one is written where none does."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
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
    writes to a tensor, and another tensor has another address. Writes through `.data` are not counted.
    """

    def __init__(self) -> None:
        self._file: WeightsFile | None = None
        self._state: Any = None
        self._held: list[Any] = []  # so that no other tensor can come to be at the same address
        self._forget: weakref.finalize[..., Any] | None = None

    def file(self, yolo: Any) -> WeightsFile:
        """Return a file with the weights in memory: one of the object's own, or one that is written to a new folder.

        Raises:
            ExportError: There is none, and none can be written.
        """
        state = _state(yolo.model)
        if self._file is None or state != self._state or WeightsFile.at(self._file.path) != self._file:
            self._state, held = None, [tensor.detach() for tensor in _tensors(yolo.model).values()]
            file = next((file for file in _candidates(yolo) if _holds(file.path, yolo)), None) or self._save(yolo)
            self._file = self._file if file == self._file else file
            self._state, self._held = state, held
        return self._file

    def _save(self, yolo: Any) -> WeightsFile:
        import torch

        self.close()
        folder = tempfile.mkdtemp(prefix="yolo-rocm-weights-")
        self._forget = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        # Some kinds of models are told by their file's name.
        name = getattr(yolo, "ckpt_path", None) or getattr(yolo.model, "yaml_file", None) or "model"
        path = Path(folder) / f"{Path(str(name)).stem}.pt"
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
        """Remove what was written, and let go of the tensors."""
        if self._forget is not None:
            self._forget()
        self._forget = self._file = None
        self._held = []


def _state(model: Any) -> Any:
    """Return what changes when a model does; tensors made in inference mode are counted by their address alone."""
    tensors = _tensors(model).values()
    counts = [(each.data_ptr(), each.dtype, None if each.is_inference() else each._version) for each in tensors]
    return _facts(model), counts


def _tensors(model: Any) -> dict[str, Any]:
    """Return parameters, buffers and the model's own tensors, such as what `set_classes` leaves."""
    import torch

    own = {name: value for name, value in vars(model).items() if isinstance(value, torch.Tensor)}
    return {**dict(model.named_parameters()), **dict(model.named_buffers()), **own}


def _facts(model: Any) -> tuple[Any, ...]:
    """Return what decides about results beside tensors: classes, kinds of modules, the head."""
    layers = getattr(model, "model", None)
    head = layers[-1] if layers is not None and len(layers) else None
    kinds = tuple(type(module) for module in model.modules())
    return repr(getattr(model, "names", None)), kinds, tuple(str(getattr(head, name, None)) for name in _HEAD)


def _candidates(yolo: Any) -> list[WeightsFile]:
    """Return the files that the weights may have come from: loaded, or written by a training of the object."""
    trainer = getattr(yolo, "trainer", None)
    names = (getattr(yolo.model, "pt_path", None), getattr(yolo, "ckpt_path", None), getattr(trainer, "best", None))
    paths = dict.fromkeys(Path(str(name)).absolute() for name in names if name)
    return [file for path in paths if path.suffix == ".pt" and (file := WeightsFile.at(path)) is not None]


def _holds(file: Path, yolo: Any) -> bool:
    """Return whether a file, loaded as Ultralytics does it, is what is in memory; also fused, as some do it."""
    import torch

    try:
        kept = load_model(file, yolo.task).model
        with torch.no_grad():
            device = next(yolo.model.parameters()).device  # fused where Ultralytics does it
            return _equal(yolo.model, kept) or _equal(yolo.model, kept.to(device).fuse(verbose=False))
    except Exception:  # no file of Ultralytics, or of another release, or damaged
        return False


def _equal(model: Any, kept: Any) -> bool:
    import torch

    mine, other = _tensors(model), _tensors(kept)
    if mine.keys() != other.keys() or _facts(model) != _facts(kept):
        return False
    pairs = ((mine[name], other[name]) for name in mine)
    return all(a.shape == b.shape and torch.equal(a, b.to(a.device, a.dtype)) for a, b in pairs)
