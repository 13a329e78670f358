"""Compilers in processes of their own: what they are told, what they say, and what becomes of those that are ill."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from yolo_rocm.engines.hip import available, compiler, workers
from yolo_rocm.engines.hip.compiler import Compiler
from yolo_rocm.engines.hip.program import Program
from yolo_rocm.engines.hip.store import STORE, Store, key_of
from yolo_rocm.engines.hip.target import Target
from yolo_rocm.engines.kernel_errors import CompilerError

from .stand_in import forget, needs_cc

pytestmark = needs_cc
ADD = Program("KERNEL(64) void add() {}", "add.cpp", {"SIZE": 4, "TYPE": "float"})


@pytest.mark.parametrize(
    ("wheel", "library", "options"),
    [
        ("rocm5.2", "libamdhip64.so", "--offload-arch=gfx1010:xnack- -O3 -std=c++17 -ffp-contract=on"),
        ("rocm6", "libhiprtc.so", "--offload-arch=gfx1010:xnack- -O3 -std=c++17 -ffp-contract=on"),
        ("cuda12", "libnvrtc.so.12", "--gpu-architecture=sm_90 --std=c++17"),
    ],
)
def test_each_call_of_the_compiler(pretend, wheels, caplog, events, wheel, library, options):
    caplog.set_level(logging.INFO, "yolo_rocm")
    stand_in = pretend(wheel)
    arch = options.split()[0].partition("=")[2]
    path = wheels(wheel) / "torch" / "lib" / library
    assert available.device_reason("cuda:0") is None
    assert available.in_words("cuda:0") == f"available ({path} for {arch}, runtime 50221153)"
    ADD.prepare("cuda:0")
    ADD.prepare("cuda:0")  # in the store by now
    assert stand_in.calls() == [
        line
        for name in ("trial", "add.cpp")
        for line in (f"create {name} headers=0 1 1 kernel=1", f"compile {name} {options}", f"destroy {name}")
    ]
    forget()
    stand_in.mode("abort")
    assert available.device_reason("cuda:0") is None  # as for the next process
    ADD.prepare("cuda:0")
    assert stand_in.calls() == []
    assert events.ids == ["hip.compiling"]
    assert events.lines[0] == f"kernels are compiled for {arch}, once: they are kept in {STORE.folder}"


def test_what_differs_is_another_object():
    target = Target("hip", "gfx1010")
    first = Compiler("libhiprtc.so", target, "50221153 libhiprtc.so 7")
    others = (Target("hip", "gfx1030"), first.version), (target, "60000000 libhiprtc.so 7")
    assert len({first.key("a"), first.key("b"), *(Compiler(first.library, *each).key("a") for each in others)}) == 4
    assert first.key("a") == Compiler("elsewhere/libhiprtc.so", target, first.version).key("a")


def test_an_error_has_the_compilers_words_and_is_not_asked_for_twice(old, events):
    assert available.device_reason("cuda:0") is None
    old.mode("refuse")
    words = r"^add.cpp: hiprtcCompileProgram: RTC_ERROR_COMPILATION \(6\): k.cpp\(3\): error: no such thing"
    with pytest.raises(CompilerError, match=words):
        ADD.prepare("cuda:0")
    old.calls()
    with pytest.raises(CompilerError, match=words):
        ADD.prepare("cuda:0")
    assert old.calls() == []
    other = Program("KERNEL(64) void other() {}", "other.cpp")
    old.mode("abort")
    with pytest.raises(CompilerError, match="process ended by SIGABRT: LLVM ERROR: Cannot select"):
        other.prepare("cuda:0")
    forget()
    old.mode("")
    other.prepare("cuda:0")  # by a new worker
    assert not events.warnings


def test_a_hanging_compiler_costs_a_line_and_is_not_waited_for_again(old, monkeypatch, events):
    monkeypatch.setattr(compiler, "FIRST_LIMIT_S", 0.5)
    made, starting = [], workers.Worker
    monkeypatch.setattr(workers, "Worker", lambda: made.append(starting()) or made[-1])
    old.mode("hang")
    why = available.device_reason("cuda:0")
    assert why.endswith("libamdhip64.so: the compiler has not answered within 0 s")
    assert all(worker._process.poll() is not None for worker in made)
    assert events.of("hip.off") == [f"engine 'hip' is left out: {why}"]
    with pytest.raises(CompilerError, match=r"nothing compiles for cuda:0: .*not answered"):
        ADD.prepare("cuda:0")
    old.calls()
    forget()  # as the next process does
    assert "has hung when it was last tried; delete" in available.device_reason("cuda:0")
    assert old.calls() == []
    next(STORE.folder.glob("*.hung")).unlink()
    forget()
    old.mode("")
    monkeypatch.setattr(compiler, "FIRST_LIMIT_S", 30.0)
    assert available.device_reason("cuda:0") is None


def test_a_compiler_without_a_function_gives_way_to_the_next(pretend, wheels, tmp_path):
    stand_in = pretend("rocm6")
    broken = tmp_path / "site" / "torch" / "lib"
    broken.mkdir(parents=True)
    (broken / "libhiprtc.so").write_bytes(b"no library at all")
    (broken / "libamdhip64.so").symlink_to(wheels("rocm5.2") / "torch" / "lib" / "libamdhip64.so")
    stand_in.monkeypatch.setattr("yolo_rocm.engines.hip.libraries.torch_folder", lambda: broken.parent)
    forget()
    assert available.in_words("cuda:0").startswith(f"available ({broken}/libamdhip64.so for gfx1010")
    (broken / "libamdhip64.so").unlink()
    (broken / "libamdhip64.so").symlink_to(wheels("rocm6") / "torch" / "lib" / "libamdhip64.so")  # no hiprtc inside
    stand_in.monkeypatch.setenv("YOLO_ROCM_CACHE", str(tmp_path / "another"))
    forget()
    assert "libhiprtc.so cannot be used: " in available.device_reason("cuda:0")


def test_a_hanging_compiler_ends_with_its_parent(old):
    """The doctor's probing process may be killed while its compiler hangs."""
    script = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[2]); from yolo_rocm.engines.hip.workers import Worker\n"
        "worker = Worker()\n"
        "print(worker._process.pid, flush=True)\n"
        "worker.ask({'library': sys.argv[1], 'family': 'hip', 'text': '', 'name': 'k', 'options': []}, 60.0)"
    )
    old.mode("hang")
    library = compiler.find(compiler.stack_of("hip").compiler, compiler.stack_of("hip"))[0]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, library, str(Path(workers.__file__).parents[3])],
        stdout=subprocess.PIPE,
        text=True,
    )
    worker = int(parent.stdout.readline())
    while not any(line.startswith("compile") for line in old.calls()):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 30
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _runs(worker)


def _runs(number: int) -> bool:
    status = Path(f"/proc/{number}/status")
    return status.exists() and "State:\tZ" not in status.read_text()  # nobody may collect it here


def test_idle_workers_end(old):
    pool = workers.Pool(most=2, idle_s=0.2)
    made = []
    starting = workers.Worker
    old.monkeypatch.setattr(workers, "Worker", lambda: made.append(starting()) or made[-1])
    library = str(compiler.find(compiler.stack_of("hip").compiler, compiler.stack_of("hip"))[0])
    for name in ("a", "b"):
        assert pool.compile(library, "hip", "text", name, [], 20.0) == f"code of {name}, 4 bytes".encode()
    (worker,) = made  # one after the other: one process
    assert worker._process.wait(20.0) is not None


def test_a_damaged_object_is_made_again_with_one_line(tmp_path, events):
    store, key = Store(tmp_path), key_of("text")
    assert store.get_or_make(key, lambda: b"code") == b"code"
    path = store.path(key)
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", whole[:-1] + b"x", b"another\n" + whole):
        path.write_bytes(damaged)
        assert store.get_or_make(key, lambda: b"code") == store.get_or_make(key, lambda: b"none") == b"code"
        assert path.read_bytes() == whole
    assert events.ids == ["hip.damaged"] * 4
    (tmp_path / "file").touch()
    assert Store(tmp_path / "file" / "kernels").get_or_make(key, lambda: b"code") == b"code"
    assert events.ids[4:] == ["hip.not_kept"]  # a disk that takes nothing
