"""One batch, read in this process."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch.utils.data import default_collate

from yolo_rocm.data.batch_images import BatchImages
from yolo_rocm.data.reader import BatchReader, PlainAdapter, Request
from yolo_rocm.data.transport import HAS_MEMFD, Ring
from yolo_rocm.errors import LoaderError

from .samples import Broken, Numbers


def test_a_broken_sample_is_counted_once_and_replaced_by_the_same_one_in_every_run():
    taken = []
    for _ in range(2):
        batch, trace, stack = BatchReader(Broken(), default_collate, PlainAdapter()).read(Request(5, (2, 3, 4)))
        assert trace.broken == [("sample 3", "FileNotFoundError: no picture 3")]
        assert (trace.number, trace.samples, stack) == (5, 3, None)
        assert set(trace.stages) == {"augment", "collate"}
        taken.append(batch["index"].tolist())
    assert taken == [[2, (3 + 7919) % 40, 4]] * 2


class Another(Numbers):
    """Sample 1 needs sample 7 as well, which cannot be read the first time."""

    failed = False

    def __getitem__(self, index: int) -> dict:
        if index == 1 and not self.failed:
            self.failed = True
            error = OSError("truncated")
            error.image_index = 7
            raise error
        return super().__getitem__(index)


def test_a_sample_that_failed_for_another_ones_sake_is_tried_again():
    batch, trace, _ = BatchReader(Another(), default_collate, PlainAdapter()).read(Request(0, (1, 2)))
    assert batch["index"].tolist() == [1, 2]
    assert len(trace.broken) == 1


class Gone(Numbers):
    """Nothing can be read."""

    def __getitem__(self, index: int) -> dict:
        raise OSError(f"no {index}")


def test_a_disk_that_is_gone_ends_the_batch():
    with pytest.raises(LoaderError, match=r"8 samples in a row .* the last was sample \d+ .*Is the disk"):
        BatchReader(Gone(), default_collate, PlainAdapter()).read(Request(0, (1, 2)))


def test_the_sample_whose_code_is_wrong_is_named():
    reader = BatchReader(Broken(), default_collate, PlainAdapter(), skip_broken=False)
    with pytest.raises(FileNotFoundError):
        reader.read(Request(0, (2, 3)))
    assert reader.reading == "sample 3"


class Placing(Numbers):
    """Writes its images where it is told to; sample 1 has another shape."""

    def __getitem__(self, index: int) -> dict:
        image = self.place((3, 8, 9) if index == 1 else (3, 8, 8))
        image[:] = index
        self.where = [*getattr(self, "where", []), image.ctypes.data]
        return {"img": torch.from_numpy(image), "index": index}


class Places(PlainAdapter):
    """Tells a data set where its images go."""

    @contextmanager
    def attached(self, dataset, spend, place):
        """Hand over the function."""
        dataset.place = place
        yield


@pytest.mark.skipif(not HAS_MEMFD, reason="batches travel in torch's shared memory here")
def test_images_are_written_into_their_batch_and_only_where_they_fit():
    reader = BatchReader(Placing(), default_collate, Places())
    ring = Ring(4)
    reader.images = BatchImages(ring)
    with reader.attached():
        batch, _, stack = reader.read(Request(0, (4, 5, 6)))
        assert batch["img"] is stack.tensor
        assert batch["img"][:, 0, 0, 0].tolist() == [4, 5, 6]
        assert reader.dataset.where == [image.data_ptr() for image in stack.tensor]
        with pytest.raises(LoaderError, match="differ in shape"):
            reader.read(Request(1, (0, 1)))
        abandoned = ring.take(1)
        ring.give_back([abandoned.number])
        reader.images.begin(2)  # the memory of the batch that failed is used again
        assert ring.take(1) is abandoned
