"""Ctrl-C, SIGTERM, a closed terminal, kill -9: no process, no shared memory, no half-written checkpoint is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import yolo_rocm
from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.session import sigterm

from ..small_model import small_model

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs signals and /proc"),
]

SCRIPT = """
import os, sys, time
import yolo_rocm
from yolo_rocm.utils import atomic

data, project, how = sys.argv[1:]
replace, saved = os.replace, []

def slow(source, target):  # make the window between writing a checkpoint and giving it its name a wide one
    if str(target).endswith("last.pt"):
        saved.append(target)
        if how == "saving" and len(saved) == 2:
            print("NOW", flush=True)
            time.sleep(60)
    replace(source, target)

def tell(trainer):
    if how == "batch" and trainer.epoch == 1:
        print("NOW", flush=True)

if __name__ == "__main__":
    atomic.os.replace = slow
    from ultralytics import YOLO
    yolo = YOLO("yolov8n.yaml")
    yolo_rocm.register(yolo, "cpu")
    yolo.add_callback("on_train_batch_end", tell)
    yolo.train(data=data, project=project, name="run", epochs=200 if how == "batch" else 2, imgsz=32, batch=4,
               workers=2, device="cpu", plots=False, seed=0, verbose=False,
               deterministic=False)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("interrupted"), images=8, size=64)


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below one, with the moment each was started, which tells it from a later one."""
    parents, started = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)], started[int(entry.name)] = int(fields[1]), fields[19]
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return {child: started[child] for child in found - {pid}}
        found |= more


def alive(processes: dict[int, str]) -> list[int]:
    result = []
    for pid, started in processes.items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == started and fields[0] != "Z":
            result.append(pid)
    return result


def interrupt(data: Path, folder: Path, how: str, number: int) -> tuple[int, str]:
    """Train in a process of its own, send it a signal, and see that nothing is left."""
    script, log, temporary = folder / "script.py", folder / "log", folder / "temporary"
    script.write_text(SCRIPT.replace("yolov8n.yaml", small_model()))
    temporary.mkdir()
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(script), str(data), str(folder), how], stdout=out, stderr=out, cwd=folder,
            start_new_session=True, env={**os.environ, "TMPDIR": str(temporary)},
        )  # fmt: skip
        try:
            while "NOW" not in log.read_text(errors="replace"):  # as long as the test's own limit
                assert process.poll() is None, log.read_text(errors="replace")
                time.sleep(0.02)
            children = descendants(process.pid)
            if number == signal.SIGKILL:
                process.kill()  # as the kernel does when memory runs out
            else:
                os.killpg(process.pid, number)  # as a terminal and Slurm do: to all of them
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    text = log.read_text(errors="replace")
    assert len(children) >= 2, "loading workers were expected"
    while alive(children):
        time.sleep(0.05)
    # By the names torch gives its segments: other processes use /dev/shm at the same time.
    own = tuple(f"torch_{pid}_" for pid in (process.pid, *children))
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)] == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith(("yolo-rocm", "tmp"))] == []
    return code, text


@pytest.mark.timeout(300)
def test_sigterm_ends_everything_in_order(data, tmp_path):
    """Ctrl-C with workers is in test_loading, and what it says in test_resume."""
    code, text = interrupt(data, tmp_path, "batch", signal.SIGTERM)
    last = tmp_path / "run" / "weights" / "last.pt"
    assert code == -signal.SIGTERM
    (line,) = [line for line in text.splitlines() if "stopped by SIGTERM" in line]
    done = torch.load(last, weights_only=False)["epoch"] + 1
    assert f"{last} is whole and holds epoch {done}. To go on" in line
    assert f": yolo-rocm train model={last} preset=cpu workers=2 device=cpu resume=true" in line
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert "Traceback" not in text


@pytest.mark.deep  # test_resume has the folder of that moment
@pytest.mark.timeout(300)
def test_a_kill_inside_the_writing_of_a_checkpoint_leaves_the_one_before(data, tmp_path):
    code, _ = interrupt(data, tmp_path, "saving", signal.SIGKILL)
    last = tmp_path / "run" / "weights" / "last.pt"
    assert code == -signal.SIGKILL
    assert torch.load(last, weights_only=False)["epoch"] == 0
    assert (last.parent / ".last.pt.partial").exists()
    yolo_rocm.train(str(last), preset="cpu", resume=True, workers=0)
    assert torch.load(last, weights_only=False)["epoch"] == -1
    rows = (tmp_path / "run" / "results.csv").read_text().splitlines()
    assert [row.partition(",")[0].strip() for row in rows] == ["epoch", "1", "2"]
    assert {path.name for path in last.parent.iterdir()} == {"last.pt", "best.pt"}


ORDERLY = """
import os, signal, sys, threading
from yolo_rocm.session import sigterm

def send():
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))

class Swallows:
    def __del__(self):
        send()
        for _ in range(1000):
            pass

how = sys.argv[1]
try:
    with sigterm.orderly_end():
        try:
            with sigterm.orderly_end():
                try:
                    if how == "finalizer":
                        Swallows()
                        sigterm.check()
                    else:
                        send()
                        sum(range(1000))
                    print("went on")
                except sigterm.Terminated as end:
                    print(str(end).split()[0])
                    raise
                finally:
                    print("inner")
                    if how == "error":
                        raise ValueError("while it ends")
        finally:
            print("outer")
    print("lived")
finally:
    print("beyond")
"""


@pytest.mark.parametrize(
    ("how", "which"), [("plain", "SIGTERM"), ("finalizer", "SIGTERM"), ("error", "SIGTERM"), ("plain", "SIGHUP")]
)
def test_the_signal_runs_what_is_inside_and_then_kills(how, which, hangup_heard):
    done = subprocess.run([sys.executable, "-c", ORDERLY, how, which], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (-getattr(signal, which), [which, "inner", "outer"]), done.stderr


def test_a_hangup_that_is_ignored_stays_ignored():
    """As `nohup` leaves it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with sigterm.orderly_end():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_the_answer_to_sigterm_is_put_back_and_never_taken_from_others():
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with sigterm.orderly_end():
            ours = signal.getsignal(signal.SIGTERM)
            with sigterm.orderly_end():
                assert signal.getsignal(signal.SIGTERM) is ours
            assert signal.getsignal(signal.SIGTERM) is ours
        assert ours is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        with pytest.raises(KeyError), sigterm.orderly_end():
            raise KeyError
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

        def elsewhere():
            with sigterm.orderly_end():
                seen.append(signal.getsignal(signal.SIGTERM))

        seen = []
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [signal.SIG_DFL]
        theirs = signal.default_int_handler
        signal.signal(signal.SIGTERM, theirs)
        with sigterm.orderly_end():
            assert signal.getsignal(signal.SIGTERM) is theirs
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
