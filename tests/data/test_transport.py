"""Batches between processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading

import pytest
import torch

from yolo_rocm.data.transport import HAS_MEMFD, Segment, Stack, receive, send

needs_memfd = pytest.mark.skipif(not HAS_MEMFD, reason="this system has no memfd")


def through(message, stacks=()):
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        sender = threading.Thread(target=send, args=(theirs, message, stacks))
        sender.start()
        got = receive(ours)
        sender.join()  # it holds the message, and its descriptors, until it has ended
        return got


def descriptors() -> list[str]:
    """The memory files this process has open; what other threads open and close does not count."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own descriptor is gone by now
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(name for name in found if "memfd" in name)


def test_nested_tensors_of_all_sizes_arrive_as_they_were():
    message = {
        "large": torch.arange(1 << 16, dtype=torch.float32).reshape(256, 256),
        "strided": torch.arange(1 << 17, dtype=torch.int64).reshape(512, 256).t(),
        "small": torch.tensor([1.5, 2.5]),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 4),
        "half": torch.ones(3, dtype=torch.float16),
        "bfloat": torch.ones(3, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
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
    before = descriptors()
    stack = Stack(2, torch.zeros(3, 1 << 14, dtype=torch.uint8))
    stack.tensor[0], stack.tensor[1] = 1, 2
    got = through({"img": stack.tensor, "other": torch.ones(1 << 15)}, (stack,))
    assert got["img"][:, 0, 0].tolist() == [1, 2]
    stack.tensor[0] = 9  # the same memory, seen from both sides
    assert got["img"][0, 0, 0] == 9
    del got, stack
    assert descriptors() == before


@needs_memfd
def test_a_segment_leaves_nothing_in_dev_shm():
    segment = Segment(1 << 20)
    own = (f"torch_{os.getpid()}_", "yolo_rocm")  # other processes use /dev/shm at the same time
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)] == []
    segment.close()
    segment.close()


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
