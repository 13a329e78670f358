"""Reads one batch of a data set: samples, replacements for broken ones, collation, and how long each took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..errors import LoaderError
from .batch_images import BatchImages
from .seeding import generators_kept, seed_sample
from .transport import Stack

_TRIES: Final = 8


@dataclass(frozen=True)
class Request:
    """One batch to read. `seed` is given where batches must not depend on the worker that reads them."""

    number: int
    indices: tuple[Any, ...]
    seed: int | None = None


@dataclass
class Trace:
    """How the time of a batch was spent, in seconds by stage, and what could not be read.

    `broken` has the name of each sample that could not be read, and why.
    """

    number: int
    samples: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    broken: list[tuple[str, str]] = field(default_factory=list)


Place = Callable[[tuple[int, ...]], "np.ndarray[Any, np.dtype[np.uint8]]"]


class PlainAdapter:
    """What a kind of data set needs in the process that reads it; any PyTorch data set needs nothing."""

    def lists(self, dataset: Any) -> Mapping[str, list[Any]]:
        """Return long lists of the data set that all workers may share. Only its author knows which stay unchanged."""
        return {}

    def image_bytes(self, dataset: Any) -> int:
        """Return the bytes of one image in a batch; 0 if unknown."""
        return 0

    @contextmanager
    def attached(self, dataset: Any, spend: Callable[[str, float], None], place: Place) -> Iterator[None]:
        """Return a context in which the data set is read; what it changes is undone at the end.

        `spend` takes a stage and its seconds; `place` gives memory for the image of the sample that is being read.
        """
        yield

    def begin_batch(self, dataset: Any, indices: Sequence[Any], strict: bool) -> None:
        """Get ready for a batch; with `strict`, forget everything that earlier batches left behind."""

    def name_of(self, dataset: Any, index: Any, error: BaseException) -> str:
        """Name the sample for people."""
        return f"sample {index}"


def unreadable(error: BaseException) -> bool:
    """Return whether an error is the file's fault, not the code's: such a sample is replaced, others end the run."""
    if isinstance(error, OSError):  # PIL.UnidentifiedImageError is one
        return True
    return type(error).__module__.partition(".")[0] == "cv2" and type(error).__name__ == "error"


def _anywhere(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.empty(shape, np.uint8)


class BatchReader:
    """Reads batches of a data set, in a worker or in the training process itself.

    Args:
        dataset: A map-style data set.
        collate: Makes a batch of a list of samples.
        adapter: What this kind of data set needs.
        skip_broken: Replace samples whose file cannot be read by others.
        stacks_images: The collation stacks the images of samples and does nothing else with them.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any],
        adapter: PlainAdapter,
        skip_broken: bool = True,
        stacks_images: bool = False,
    ) -> None:
        self.dataset, self.collate, self.adapter = dataset, collate, adapter
        self.skip_broken, self.stacks_images = skip_broken, stacks_images
        self.images: BatchImages | None = None  # where a worker writes images, if they are to travel from there
        self.reading = ""  # the sample whose error ended a batch
        self._stages: dict[str, float] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Prepare the data set for reading in this process, and put it back."""
        place = _anywhere if self.images is None else self.images.place
        with self.adapter.attached(self.dataset, self._spend, place):
            yield

    def _spend(self, stage: str, seconds: float) -> None:
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    def read(self, request: Request) -> tuple[Any, Trace, Stack | None]:
        """Return a batch, its trace, and the stack that its images are in.

        A batch with a seed is the same whoever reads it, and leaves the generators as they were.
        """
        if request.seed is None:
            return self._read(request)
        with generators_kept():
            seed_sample(request.seed, request.number)
            return self._read(request)

    def _read(self, request: Request) -> tuple[Any, Trace, Stack | None]:
        trace, began = Trace(request.number, len(request.indices)), time.monotonic()
        self._stages = trace.stages
        self.adapter.begin_batch(self.dataset, request.indices, request.seed is not None)
        if self.images is not None:
            self.images.begin(len(request.indices))
        samples: list[Any] = []
        for index in request.indices:
            samples.append(self._sample(index, trace))
            if self.images is not None:
                self.images.add(samples[-1])
        sampled = time.monotonic()
        self._spend("augment", sampled - began - sum(trace.stages.values()))
        batch = self.collate(samples)
        stack = None if self.images is None else self.images.finish(batch)
        self._spend("collate", time.monotonic() - sampled)
        return batch, trace, stack

    def _sample(self, index: Any, trace: Trace) -> Any:
        wanted = index
        for attempt in range(_TRIES):
            try:
                return self.dataset[wanted]
            except Exception as error:
                name = self.adapter.name_of(self.dataset, wanted, error)
                if not self.skip_broken or not unreadable(error):
                    self.reading = name
                    raise
                trace.broken.append((name, f"{type(error).__name__}: {error}"))
                if getattr(error, "image_index", wanted) == wanted:  # else it was another image of its mosaic
                    # A fixed step: the same sample takes the place in every run.
                    wanted = (int(index) + 7919 * (attempt + 1)) % len(self.dataset)
        name, reason = trace.broken[-1]
        raise LoaderError(
            f"{_TRIES} samples in a row could not be read, the last was {name} ({reason}). Is the disk with the data "
            "set still there?"
        )
