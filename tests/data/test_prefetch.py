"""Batches one ahead: order, errors, what is kept, what is used again."""

from __future__ import annotations

import collections
import contextlib
import gc
import time
import weakref

import pytest
import torch

from yolo_rocm.data.prefetch import DevicePrefetcher, prefetch_default

from ..tables import each_row

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
LARGE = (4, 3, 320, 352)


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
    """The prefetcher's own course of action, with copies in CPU memory."""
    streams = []

    class Elsewhere(DevicePrefetcher):
        def _copied(self, tensor):
            return tensor.clone()

    def stream(device):
        streams.append(NoStream(device))
        return streams[-1]

    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", NoStream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    return lambda source: Elsewhere(source, "cuda"), streams


@pytest.fixture(params=["cpu", "ahead", pytest.param("cuda", marks=gpu)])
def prefetcher(request):
    kind = request.param
    return request.getfixturevalue("ahead")[0] if kind == "ahead" else lambda source: DevicePrefetcher(source, kind)


def test_order_and_values(prefetcher):
    seen = list(prefetcher(batches(7)))
    assert [batch["cls"].item() for batch in seen] == list(range(7))
    # All seven are kept at once, so none may have been overwritten by another.
    assert [batch["img"].unique().tolist() for batch in seen] == [[number] for number in range(7)]
    assert [batch["name"] for batch in seen] == [[str(number)] for number in range(7)]


def test_errors_come_with_their_batch(prefetcher):
    def broken():
        yield from batches(2)
        raise OSError("disk gone")

    iterator = iter(prefetcher(broken()))
    assert [next(iterator)["cls"].item() for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="disk gone"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_closing_early_closes_the_source(prefetcher):
    ended = []

    def source():
        try:
            yield from batches(100)
        finally:
            ended.append(True)

    held = source()  # so that it does not end merely because nobody refers to it
    iterator = iter(prefetcher(held))
    next(iterator)
    iterator.close()
    assert ended == [True]


def test_each_iteration_starts_anew(prefetcher):
    both = prefetcher([{"cls": torch.tensor([1])}, {"cls": torch.tensor([2])}])
    assert len(both) == 2
    assert [batch["cls"].item() for _ in range(2) for batch in both] == [1, 2, 1, 2]
    assert list(prefetcher([])) == []


def test_other_shapes_of_batches(prefetcher):
    Pair = collections.namedtuple("Pair", "x y")
    marker = object()
    source = [Pair(torch.ones(2), [torch.zeros(1), "a"]), (torch.ones(1), marker), [1, 2], marker]
    pair, two, numbers, thing = prefetcher(source)
    assert isinstance(pair, Pair)
    assert pair.x.tolist() == [1, 1]
    assert pair.y[1] == "a"
    assert two[1] is marker
    assert numbers is source[2]
    assert thing is marker


def test_one_ahead_and_no_more(ahead):
    make, streams = ahead
    fetched = []

    def source():
        for batch in batches(5):
            fetched.append(batch["cls"].item())
            yield batch

    for number, _ in enumerate(make(source())):
        assert fetched[-1] == min(number + 1, 4)
    assert [stream.drained for stream in streams] == [1]


def test_the_prefetcher_holds_on_to_no_batch_that_it_has_handed_out(ahead):
    iterator = iter(ahead[0](batches(4)))
    for _ in range(4):
        batch = next(iterator)
        image = weakref.ref(batch["img"])
        del batch
        assert image() is None


@each_row("cut", [lambda image: image[1:], lambda image: image[0, 0].t(), lambda image: image.view(-1)])
def test_a_kept_slice_of_a_batch_is_not_overwritten(prefetcher, cut):
    kept = [cut(batch["img"]) for batch in prefetcher(batches(6))]
    assert [piece.unique().tolist() for piece in kept] == [[number] for number in range(6)]


@each_row(
    ("vram", "asked", "on", "said"),
    [
        (6, None, False, "8 GB"),
        (7.98, None, False, "8 GB"),
        (8.0, None, False, "8 GB"),
        (8.2, None, False, "8 GB"),
        (12, None, True, "12 GB"),
        (None, None, False, "unknown"),
        (6, True, True, "asked"),
        (192, False, False, "user"),
    ],
)
def test_default(vram, asked, on, said):
    decided, reason = prefetch_default(vram, asked)
    assert decided is on
    assert said in reason


def busy(seconds):
    """Give the current stream work for about that long."""
    a = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
    each = (time.perf_counter() - start) / 20
    return lambda: [a @ a for _ in range(max(1, int(seconds / each)))]


@gpu
def test_gpu_batch_in_use_is_not_overwritten():
    """The consumer's stream reads each batch late, behind other work, while the host runs ahead of it."""
    work, sums, places = busy(0.02), [], set()
    for batch in DevicePrefetcher(batches(12), "cuda"):
        work()
        sums.append(batch["img"].sum(dtype=torch.int64))
        places.add(batch["img"].data_ptr())
    size = torch.Size(LARGE).numel()
    assert [total.item() for total in sums] == [number * size for number in range(12)]
    assert len(places) <= 3


@gpu
def test_gpu_consumer_on_a_stream_of_its_own():
    own, work, sums = torch.cuda.Stream(), busy(0.02), []
    with torch.cuda.stream(own):
        for batch in DevicePrefetcher(batches(8), "cuda"):
            work()
            sums.append(batch["img"].float().mean())
    own.synchronize()
    assert [round(mean.item()) for mean in sums] == list(range(8))


@gpu
def test_gpu_memory_is_given_back():
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    iterator = iter(DevicePrefetcher(batches(50), "cuda"))
    for _ in range(5):
        batch = next(iterator)
    size = torch.Size(LARGE).numel()
    assert torch.cuda.memory_allocated() - before <= 3 * size + (1 << 20)
    del batch
    iterator.close()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


@gpu
def test_gpu_host_does_not_wait():
    """Handing out a batch takes no longer because the device is busy."""
    work = busy(0.2)
    iterator = iter(DevicePrefetcher([batch for batch in batches(6)], "cuda"))
    next(iterator), next(iterator)
    torch.cuda.synchronize()
    work()
    start = time.perf_counter()
    next(iterator)
    asked = time.perf_counter() - start
    torch.cuda.synchronize()
    assert asked < 0.5 * (time.perf_counter() - start)
    iterator.close()
