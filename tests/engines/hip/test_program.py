"""Loading and launching through a stand-in runtime: every call, its arguments and their order, and what is refused."""

from __future__ import annotations

import contextlib
import ctypes
import threading

import pytest
import torch

from yolo_rocm.engines.hip import program
from yolo_rocm.engines.hip.program import Program
from yolo_rocm.engines.kernel_errors import LaunchError

from .stand_in import STREAM, needs_cc

pytestmark = needs_cc
SOURCE = "KERNEL(64) void add_pipfl() {}"
ADD = Program(SOURCE, "add.cpp")
LONG = ctypes.c_int64(1)


def launched(stand_in) -> list[str]:
    """Return the launches since the last time."""
    return [line.removeprefix("launch ") for line in stand_in.calls() if line.startswith("launch ")]


@pytest.fixture
def bound(old):
    """A launch with two addresses."""
    return ADD.kernel("add_pipfl", "cuda:0").bound((1, 1, 1), 64, None, 1, None, 1.0, LONG)


@pytest.mark.parametrize("wheel", ["rocm5.2", "rocm6", "cuda12"])
def test_each_call_from_loading_to_launching(pretend, wheel):
    stand_in = pretend(wheel)
    ADD.prepare("cuda:0")
    stand_in.calls()
    kernel = ADD.kernel("add_pipfl", torch.device("cuda:0"), 65536)
    current = ["device 0", "retain 100", "current 0x640"] if wheel == "cuda12" else ["device 0"]
    allowed = ["attribute add_pipfl 8=65536"] if wheel == "cuda12" else []
    size = len(ADD.text().encode())
    assert stand_in.calls() == [
        *current,
        *("capture mode 2", f"load code of add.cpp, {size} bytes", "capture mode 0"),
        *("capture mode 2", "function add_pipfl of 0x10", "capture mode 0"),
        *allowed,
    ]
    assert kernel.local_bytes == 16
    again = kernel.bound((5, 6, 7), 256, None, -3, None, 0.5, ctypes.c_int64(2**40))
    again(0x1000, 0)
    stand_in.monkeypatch.setattr(program, "current_stream", lambda number: 0)
    again(2**48 - 16, 0x2000)
    assert launched(stand_in) == [
        f"add_pipfl 5,6,7 256,1,1 65536 {STREAM:#x} 0x1000 -3 0 0.5f {2**40}l",
        f"add_pipfl 5,6,7 256,1,1 65536 (nil) {2**48 - 16:#x} -3 0x2000 0.5f {2**40}l",
    ]
    assert ADD.kernel("add_pipfl", "cuda:0", 65536) is kernel
    assert Program(SOURCE, "add.cpp").kernel("add_pipfl", "cuda", 65536) is kernel  # the same text, and device 0
    assert stand_in.calls() == []
    ADD.kernel("add_pipfl", "cuda:0", 48 * 1024)  # another kernel of the module, and nothing to ask for
    assert [line.split()[0] for line in stand_in.calls()] == ["capture", "function", "capture"]


def test_threads_do_not_mix_their_arguments(old, bound):
    threads = [
        threading.Thread(target=lambda at=at: [bound(at, at) for _ in range(50)]) for at in (0x100, 0x200, 0x300, 0x400)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [line.split() for line in launched(old)]
    assert len(rows) == 200
    assert all(row[5] == row[7] for row in rows)
    assert {row[5] for row in rows} == {"0x100", "0x200", "0x300", "0x400"}


def test_a_launch_goes_to_its_own_device(old):
    device, entered = [0], []

    @contextlib.contextmanager
    def on(number):
        entered.append(number)
        before, device[0] = device[0], number
        yield
        device[0] = before

    old.monkeypatch.setattr(program, "current_device", lambda: device[0])
    old.monkeypatch.setattr(program, "current_stream", lambda number: 0x100 * (number + 1))
    old.monkeypatch.setattr(torch.cuda, "device", on)
    first, second = (ADD.kernel("add_pipfl", f"cuda:{number}") for number in (0, 1))
    assert [line for line in old.calls() if line.startswith("device ")] == ["device 0", "device 1"]  # two modules
    for kernel in (second, first):
        kernel.bound((1, 1, 1), 64, None, 1, None, 1.0, LONG)(0, 0)
    assert [line.split()[4] for line in launched(old)] == ["0x200", "0x100"]
    assert entered == [1]


@pytest.mark.parametrize(("wheel", "current"), [("rocm5.2", "device 0"), ("cuda12", "current 0x640")])
def test_a_thread_without_a_device_gets_it(pretend, wheel, current):
    stand_in = pretend(wheel)
    again = ADD.kernel("add_pipfl", "cuda:0").bound((1, 1, 1), 64, None, 1, None, 1.0, LONG)
    stand_in.calls()
    stand_in.mode("no-context")
    again(0, 0)
    first, then, last = stand_in.calls()
    assert (first, then) == ("launch without a context", current)
    assert last.startswith("launch add_pipfl")


def test_a_refusal_says_what_the_runtime_said(old, bound):
    old.mode("lost")
    with pytest.raises(
        LaunchError, match=r"^add.cpp:add_pipfl on cuda:0 was not launched: unspecified launch failure \(719\)"
    ):
        bound(0, 0)
    old.mode("")
    bound(0, 0)
    with pytest.raises(LaunchError, match=r"hipModuleGetFunction: other \(500\)"):
        ADD.kernel("missing", "cuda:0")
    with pytest.raises(OverflowError, match="2147483648, more than 32 bits"):
        ADD.kernel("add_pipfl", "cuda:0").bound((1, 1, 1), 64, 2**31)


def test_an_object_that_the_runtime_refuses_is_made_again_with_one_line(old, events):
    ADD.prepare("cuda:0")
    old.calls()
    old.mode("bad-image")
    ADD.kernel("add_pipfl", "cuda:0")
    calls = [line.split()[0] for line in old.calls()]
    assert (calls.count("load"), calls.count("compile")) == (2, 1)
    (line,) = events.of("hip.unloadable")
    assert "cannot be loaded (hipModuleLoadData: other (200)): it is compiled again" in line
