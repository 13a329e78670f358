"""Child processes are ended with their children, and one that cannot be is not waited for."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from yolo_rocm.utils.child_process import end_group, own_group

from ..tables import each_row

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell as the child")


def started(script: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a child that prints the number of its own child, and return both."""
    process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, **own_group())
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def gone(pid: int) -> bool:
    """Wait for a process that was killed: whoever adopts it may be slow to notice."""
    for _ in range(500):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@each_row("script", ["sleep 600 & echo $!; wait", "sleep 600 & echo $!; exit 3"])
def test_its_children_are_ended_with_it(script):
    process, child = started(script)
    with process:
        if "exit" in script:
            process.wait()
        assert end_group(process, 60)
        assert process.returncode == (3 if "exit" in script else -9)
    assert gone(child)
