"""Batches between processes."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from pathlib import Path

import pytest
import torch

from yolo_rocm.data.transport import HAS_MEMFD, Attachments, Ring, Stack, receive, send

from .samples import shared_memory

needs_memfd = pytest.mark.skipif(not HAS_MEMFD, reason="this system has no memfd")


@pytest.fixture(autouse=True)
def _nothing_of_other_tests():
    """Let go of memory that errors of earlier tests hold."""
    gc.collect()


def through(message, stack=None):
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        sender = threading.Thread(target=send, args=(theirs, message, stack))
        sender.start()
        got = receive(ours)
        sender.join()  # it holds the message, and its descriptors, until it has ended
        return got


def test_nested_tensors_of_all_sizes_arrive_as_they_were():
    message = {
        "large": torch.arange(1 << 16, dtype=torch.float32).reshape(256, 256),
        "strided": torch.arange(1 << 17, dtype=torch.int64).reshape(512, 256).t(),
        "small": torch.tensor([1.5, 2.5]),
        "list": [torch.zeros(1 << 15), ("text", None, 3)],
    }
    got = through(message)
    for key in message:
        if isinstance(message[key], torch.Tensor):
            assert got[key].dtype == message[key].dtype
            assert got[key].shape == message[key].shape
            assert torch.equal(got[key], message[key]), key
    assert torch.equal(got["list"][0], message["list"][0])
    assert got["list"][1] == ("text", None, 3)


@needs_memfd
def test_a_stack_is_handed_over_without_a_copy_and_leaves_no_descriptor():
    before = shared_memory()
    stack = Stack(2, torch.zeros(3, 1 << 14, dtype=torch.uint8), Ring(0))
    stack.tensor[0], stack.tensor[1] = 1, 2
    got = through({"img": stack.tensor, "other": torch.ones(1 << 15)}, stack)
    assert got["img"][:, 0, 0].tolist() == [1, 2]
    stack.tensor[0] = 9  # the same memory, seen from both sides
    assert got["img"][0, 0, 0] == 9
    del got, stack
    assert shared_memory() == before


@pytest.mark.skipif(not HAS_MEMFD, reason="elsewhere multiprocessing sends the message, in one piece")
def test_a_signal_never_leaves_half_a_request_on_the_wire():
    """What a handler raises between two writes would make the next message, the last one, unreadable."""
    ours, theirs = multiprocessing.Pipe()

    class Interrupted:
        """A connection whose user is interrupted after its first write."""

        def send_bytes(self, data) -> None:
            ours.send_bytes(data)
            raise KeyboardInterrupt

    with ours, theirs:
        with pytest.raises(KeyboardInterrupt):
            send(Interrupted(), ([3, 1, 2], (0, 1)))
        send(ours, (None, ()))
        assert receive(theirs) == ([3, 1, 2], (0, 1))
        assert receive(theirs) == (None, ())


@pytest.mark.parametrize(("shape", "dtype"), [((3, 0, 2), torch.bfloat16), ((), torch.bool), ((2, 3), torch.float16)])
def test_small_tensors_of_any_shape_and_type_arrive_as_they_were(shape, dtype):
    sent = torch.ones(shape, dtype=dtype)
    got = through(sent)
    assert (got.shape, got.dtype) == (sent.shape, dtype)
    assert torch.equal(got, sent)
    got += got  # the receiver may change it


def exchange(ring: Ring, attachments: Attachments, shape: tuple[int, ...], message=lambda images: images):
    """Send one batch of a ring's worker to the training process, which has told what it let go of."""
    ring.give_back(attachments.take_released())
    stack = Stack(shape[0], torch.zeros(shape[1:], dtype=torch.uint8), ring)
    stack.tensor.fill_(7)
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        sender = threading.Thread(target=send, args=(theirs, message(stack.tensor), stack, ring.take_dropped()))
        sender.start()
        got = receive(ours, attachments)
        sender.join()
    return got


def place(tensor: torch.Tensor) -> tuple[int, int]:
    """Which memory a tensor is in, whichever process or mapping looks at it: the device and number of its file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, _, device, number = line.split()[:5]
        start, end = (int(part, 16) for part in where.split("-"))
        if start <= tensor.data_ptr() < end:
            return device, int(number)
    raise AssertionError("not mapped")


@needs_memfd
def test_a_smaller_batch_lies_in_a_larger_segment_and_a_larger_one_replaces_it():
    ring, attachments = Ring(4), Attachments()
    before = shared_memory()
    large = exchange(ring, attachments, (2, 3, 200, 200))
    first = place(large)
    assert large.shape == (2, 3, 200, 200)
    del large
    small = exchange(ring, attachments, (2, 3, 50, 60))
    assert place(small) == first
    assert small.shape == (2, 3, 50, 60)
    assert (small == 7).all()
    del small
    larger = exchange(ring, attachments, (2, 3, 300, 300))
    assert (larger == 7).all()
    segments, _, descriptors = (now - then for now, then in zip(shared_memory(), before, strict=True))
    assert (segments, descriptors) == (2, 0)  # one, mapped on both sides
    del larger
    attachments.close()


@needs_memfd
def test_batches_beyond_the_limit_lie_in_memory_that_is_gone_with_them():
    ring, attachments, before = Ring(2), Attachments(), shared_memory()
    kept = [exchange(ring, attachments, (1, 3, 100, 100)) for _ in range(5)]
    assert len({place(batch) for batch in kept}) == 5
    assert shared_memory()[0] - before[0] == 5 + 2  # the worker holds on to two
    kept.clear()
    assert shared_memory()[0] - before[0] == 2 + 2
    assert shared_memory()[2] == before[2]


@needs_memfd
def test_images_that_stand_twice_in_a_batch_keep_their_memory_until_both_are_gone():
    ring, attachments = Ring(4), Attachments()
    both = exchange(ring, attachments, (1, 3, 100, 100), lambda images: [images, images])
    kept = both.pop()[..., 1:]  # a slice
    del both
    other = exchange(ring, attachments, (1, 3, 100, 100))
    assert place(other) != place(kept)
    del kept
    del other
    again = [exchange(ring, attachments, (1, 3, 100, 100)) for _ in range(2)]
    assert place(again[0]) != place(again[1])


@needs_memfd
def test_memory_of_images_that_are_not_sent_is_used_again():
    """A collation may make other images of them, say of floating point."""
    ring, attachments, before = Ring(4), Attachments(), shared_memory()
    for _ in range(6):
        got = exchange(ring, attachments, (1, 3, 100, 100), lambda images: images.float())
        assert (got == 7).all()
        del got
    assert shared_memory()[0] - before[0] == 1
    assert shared_memory()[2] - before[2] == 1  # its descriptor waits to be sent with it
