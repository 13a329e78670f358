"""Batches one ahead: order, errors, what is kept, what is used again."""

from __future__ import annotations

import collections
import contextlib
import gc
import weakref

import pytest
import torch

from yolo_rocm.data.prefetch import DevicePrefetcher, prefetches_by_default

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
LARGE = (4, 3, 320, 352)
DEVICE = torch.device("cuda", 0)


def batches(count, shape=LARGE):
    for number in range(count):
        yield {
            "img": torch.full(shape, number, dtype=torch.uint8),
            "cls": torch.tensor([number]),
            "name": [str(number)],
        }


class NoStream:
    """Stands in for streams and events where there is no GPU: all work is done at once."""

    def __init__(self, device=None):
        self.device, self.drained = device, 0

    def wait_stream(self, other):
        """There is nothing to wait for."""

    wait_event = wait_stream

    def record_event(self):
        """There is nothing to record."""

    def synchronize(self):
        """Count the end."""
        self.drained += 1


@pytest.fixture
def ahead(monkeypatch):
    """The prefetcher's own course of action, with copies in CPU memory, and its streams."""
    streams = []

    class Elsewhere(DevicePrefetcher):
        def _copied(self, value):
            return value.clone() if isinstance(value, torch.Tensor) else value

    def stream(device):
        streams.append(NoStream(device))
        return streams[-1]

    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", NoStream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    return lambda source: Elsewhere(iter(source), DEVICE), streams


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=gpu)])
def prefetcher(request):
    if request.param == "stand-in":
        return request.getfixturevalue("ahead")[0]
    return lambda source: DevicePrefetcher(iter(source), DEVICE)


def test_order_and_values_also_of_slices_that_are_kept(prefetcher):
    seen = list(prefetcher(batches(7)))
    assert [batch["cls"].item() for batch in seen] == list(range(7))
    # All seven are kept at once, so none may have been overwritten by another.
    assert [batch["img"].unique().tolist() for batch in seen] == [[number] for number in range(7)]
    assert [batch["name"] for batch in seen] == [[str(number)] for number in range(7)]
    cuts = [batch["img"][0, 0].t() for batch in prefetcher(batches(6))]
    assert [cut.unique().tolist() for cut in cuts] == [[number] for number in range(6)]


def test_an_error_comes_with_its_batch_and_the_source_is_asked_no_more(prefetcher):
    asked = []

    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            asked.append(True)
            if len(asked) > 2:
                raise OSError("disk gone")
            return {"cls": torch.tensor([len(asked)])}

    iterator = prefetcher(Source())
    assert [next(iterator)["cls"].item() for _ in range(2)] == [1, 2]
    with pytest.raises(OSError, match="disk gone"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert len(asked) == 3


def test_other_shapes_of_batches(prefetcher):
    Pair = collections.namedtuple("Pair", "x y")
    marker = object()
    source = [Pair(torch.ones(2), [torch.zeros(1), "a"]), (torch.ones(1), marker), [1, 2], marker]
    pair, two, numbers, thing = prefetcher(source)
    assert isinstance(pair, Pair)
    assert pair.x.tolist() == [1, 1]
    assert pair.y[1] == "a"
    assert two[1] is marker
    assert numbers == source[2]
    assert thing is marker


def test_one_ahead_and_no_more_and_nothing_held_of_what_was_handed_out(ahead):
    make, streams = ahead
    fetched = []

    def source():
        for batch in batches(5):
            fetched.append(batch["cls"].item())
            yield batch

    iterator = make(source())
    for number in range(5):
        batch = next(iterator)
        assert fetched[-1] == min(number + 1, 4)
        image = weakref.ref(batch["img"])
        del batch
        assert image() is None
    iterator.close()
    assert [stream.drained for stream in streams] == [1]


def test_small_cards_get_none_by_default():
    assert [prefetches_by_default(gigabytes) for gigabytes in (6, 8.2, 12)] == [False, False, True]


def busy(seconds):
    """Give the current stream work for about that long."""
    return lambda: torch.cuda._sleep(int(seconds * 1e9))


@gpu
def test_gpu_batch_in_use_is_not_overwritten():
    """The consumer's stream reads each batch late, behind other work, while the host runs ahead of it."""
    work, sums, places = busy(0.02), [], set()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for batch in DevicePrefetcher(batches(12), DEVICE):
            work()
            sums.append(batch["img"].sum(dtype=torch.int64))
            places.add(batch["img"].data_ptr())
    stream.synchronize()
    size = torch.Size(LARGE).numel()
    assert [total.item() for total in sums] == [number * size for number in range(12)]
    assert len(places) <= 3


@gpu
def test_gpu_memory_is_given_back():
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    iterator = DevicePrefetcher(batches(50), DEVICE)
    for _ in range(5):
        batch = next(iterator)
    size = torch.Size(LARGE).numel()
    assert torch.cuda.memory_allocated() - before <= 3 * size + (1 << 20)
    del batch
    iterator.close()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
