"""Ctrl-C, SIGTERM, a closed terminal, kill -9: no process, no shared memory, no half-written checkpoint is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from yolo_rocm.bench.demo_data import make_data
from yolo_rocm.session import sigterm

from ..small_model import small_model

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs signals and /proc"),
]

SCRIPT = """
import sys
import yolo_rocm

def tell(trainer):
    if trainer.epoch == 1:
        print("NOW", flush=True)

if __name__ == "__main__":
    data, project = sys.argv[1:]
    from ultralytics import YOLO
    yolo = YOLO("yolov8n.yaml")
    yolo_rocm.register(yolo, "cpu")
    yolo.add_callback("on_train_batch_end", tell)
    yolo.train(data=data, project=project, name="run", epochs=200, imgsz=32, batch=4,
               workers=1, device="cpu", plots=False, seed=0, verbose=False,
               deterministic=False)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return make_data(tmp_path_factory.mktemp("interrupted"), images=8, size=64)


@pytest.mark.timeout(300)
def test_sigterm_ends_everything_in_order(data, tmp_path):
    """Sent to all of a training's processes, as a terminal and Slurm do; nothing is left."""
    script, log, temporary = tmp_path / "script.py", tmp_path / "log", tmp_path / "temporary"
    script.write_text(SCRIPT.replace("yolov8n.yaml", small_model()))
    temporary.mkdir()
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(script), str(data), str(tmp_path)], stdout=out, stderr=out, cwd=tmp_path,
            start_new_session=True, env={**os.environ, "TMPDIR": str(temporary)},
        )  # fmt: skip
        try:
            while "NOW" not in log.read_text(errors="replace"):  # as long as the test's own limit
                assert process.poll() is None, log.read_text(errors="replace")
                time.sleep(0.02)
            children = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGTERM)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    text = log.read_text(errors="replace")
    assert len(children) >= 2, "loading workers were expected"
    psutil.wait_procs(children)  # as long as the test's own limit
    # By the names torch gives its segments: other processes use /dev/shm at the same time.
    own = tuple(f"torch_{pid}_" for pid in (process.pid, *(child.pid for child in children)))
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)] == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith(("yolo-rocm", "tmp"))] == []
    last = tmp_path / "run" / "weights" / "last.pt"
    assert code == -signal.SIGTERM
    (line,) = [line for line in text.splitlines() if "stopped by SIGTERM" in line]
    done = torch.load(last, weights_only=False)["epoch"] + 1
    assert f"{last} is whole and holds epoch {done}. To go on" in line
    assert f": yolo-rocm train model={last} preset=cpu workers=1 device=cpu resume=true" in line
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert "Traceback" not in text


ORDERLY = """
import os, signal, sys
from yolo_rocm.session import sigterm

class Sends:
    def __del__(self):  # what is raised here Python swallows
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
        sum(range(1000))

try:
    with sigterm.orderly_end():
        try:
            sent = Sends()
            if sys.argv[1] != "finalizer":
                sent.__del__()
            del sent
            sigterm.check()
            print("went on")
        except sigterm.Terminated as end:
            print(str(end).split()[0])
            raise
        finally:
            print("inner")
            if sys.argv[1] == "error":
                raise ValueError("while it ends")
    print("lived")
finally:
    print("beyond")
"""


@pytest.mark.parametrize(
    ("how", "which"), [("plain", "SIGTERM"), ("finalizer", "SIGTERM"), ("error", "SIGTERM"), ("plain", "SIGHUP")]
)
def test_the_signal_runs_what_is_inside_and_then_kills(how, which, hangup_heard):
    done = subprocess.run([sys.executable, "-c", ORDERLY, how, which], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (-getattr(signal, which), [which, "inner"]), done.stderr


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

        def elsewhere():
            with sigterm.orderly_end():
                seen.append(signal.getsignal(signal.SIGTERM))

        seen = []
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [signal.SIG_DFL]
        for theirs in (signal.default_int_handler, signal.SIG_IGN):  # the second as `nohup` leaves SIGHUP
            signal.signal(signal.SIGTERM, theirs)
            with sigterm.orderly_end():
                assert signal.getsignal(signal.SIGTERM) is theirs
            assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
