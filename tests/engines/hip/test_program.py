"""Loading and launching through a stand-in runtime: every call, its arguments and their order, and what is refused."""

from __future__ import annotations

import contextlib
import ctypes
import logging
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


def launched(stand_in) -> list[str]:
    """Return the launches since the last time."""
    return [line.removeprefix("launch ") for line in stand_in.calls() if line.startswith("launch ")]


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
    assert (kernel.registers, kernel.local_bytes, kernel.static_shared_bytes) == (96, 16, 2048)
    x = torch.zeros(4)
    kernel((5, 6, 7), 256, x, -3, None, 0.5, ctypes.c_int64(2**40))
    assert stand_in.calls() == [
        f"launch add_pipfl 5,6,7 256,1,1 65536 {STREAM:#x} {x.data_ptr():#x} -3 0 0.5f {2**40}l"
    ]
    assert ADD.kernel("add_pipfl", "cuda:0", 65536) is kernel
    assert Program(SOURCE, "add.cpp").kernel("add_pipfl", "cuda", 65536) is kernel  # the same text, and device 0
    assert stand_in.calls() == []
    ADD.kernel("add_pipfl", "cuda:0", 48 * 1024)  # another kernel of the module, and nothing to ask for
    assert [line.split()[0] for line in stand_in.calls()] == ["capture", "function", "capture"]


def test_a_bound_launch_takes_addresses_alone(old):
    x, y = torch.zeros(4), torch.zeros(4)
    again = ADD.kernel("add_pipfl", "cuda:0").bound((1, 1, 1), 64, x, 7, y, 1.5, ctypes.c_int64(-1))
    again(0x1000, 0x2000)
    old.monkeypatch.setattr(program, "current_stream", lambda number: 0)
    again(2**48 - 16, 0)
    assert launched(old) == [
        f"add_pipfl 1,1,1 64,1,1 0 {STREAM:#x} 0x1000 7 0x2000 1.5f -1l",
        f"add_pipfl 1,1,1 64,1,1 0 (nil) {2**48 - 16:#x} 7 0 1.5f -1l",
    ]


def test_threads_do_not_mix_their_arguments(old):
    again = ADD.kernel("add_pipfl", "cuda:0").bound((1, 1, 1), 64, None, 1, None, 1.0, ctypes.c_int64(1))
    threads = [
        threading.Thread(target=lambda at=at: [again(at, at) for _ in range(50)]) for at in (0x100, 0x200, 0x300, 0x400)
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
    device = [0]
    entered = []

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
        kernel((1, 1, 1), 64, None, 1, None, 1.0, ctypes.c_int64(1))
    assert [line.split()[4] for line in launched(old)] == ["0x200", "0x100"]
    assert entered == [1]


@pytest.mark.parametrize(("wheel", "current"), [("rocm5.2", "device 0"), ("cuda12", "current 0x640")])
def test_a_thread_without_a_device_gets_it(pretend, wheel, current):
    stand_in = pretend(wheel)
    kernel = ADD.kernel("add_pipfl", "cuda:0")
    stand_in.calls()
    stand_in.mode("no-context")
    kernel((1, 1, 1), 64, None, 1, None, 1.0, ctypes.c_int64(1))
    before, after, again = stand_in.calls()
    assert (before, after) == ("launch without a context", current)
    assert again.startswith("launch add_pipfl")


def test_a_refused_launch_says_what_the_runtime_said(old):
    kernel = ADD.kernel("add_pipfl", "cuda:0")
    old.mode("lost")
    with pytest.raises(
        LaunchError, match=r"^add.cpp:add_pipfl on cuda:0 was not launched: unspecified launch failure \(719\)"
    ):
        kernel((1, 1, 1), 64, None, 1, None, 1.0, ctypes.c_int64(1))
    old.mode("")
    kernel((1, 1, 1), 64, None, 1, None, 1.0, ctypes.c_int64(1))


def test_a_kernel_that_is_not_there(old):
    with pytest.raises(LaunchError, match=r"hipModuleGetFunction: other \(500\)"):
        ADD.kernel("missing", "cuda:0")


def test_an_object_that_the_runtime_refuses_is_made_again_with_one_line(old, caplog):
    caplog.set_level(logging.WARNING, "yolo_rocm")
    ADD.prepare("cuda:0")
    old.calls()
    old.mode("bad-image")
    ADD.kernel("add_pipfl", "cuda:0")
    calls = [line.split()[0] for line in old.calls()]
    assert calls.count("load") == 2
    assert calls.count("compile") == 1
    (record,) = caplog.records
    assert "cannot be loaded (hipModuleLoadData: other (200)): it is compiled again" in record.getMessage()


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (True, TypeError, "a bool: give 0 or 1"),
        (2**31, OverflowError, "2147483648, more than 32 bits: give it as ctypes.c_int64"),
        (-(2**31) - 1, OverflowError, "more than 32 bits"),
        ("x", TypeError, "a str, not a tensor, None, int, float or an object of ctypes"),
    ],
)
def test_other_arguments_are_refused(old, value, error, words):
    with pytest.raises(error, match=words):
        ADD.kernel("add_pipfl", "cuda:0")((1, 1, 1), 64, value)


def test_the_text_is_prelude_constants_and_source():
    text = Program("int x;", "x.cpp", {"SIZE": 4, "TYPE": "float"}).text()
    assert text.endswith('#define SIZE 4\n#define TYPE float\n#line 1 "x.cpp"\nint x;')
    assert "#define KERNEL(threads)" in text
    assert "#include" not in text
    assert Program("int x;", "x.cpp") != Program("int x;", "x.cpp", {"SIZE": 4})
