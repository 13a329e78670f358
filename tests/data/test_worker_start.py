"""How workers start and end: without the user's script, from a server started early, and without a trace."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from yolo_rocm import create_dataloader
from yolo_rocm.data import worker_start

from .samples import Numbers, worker_pids

ROOT = Path(__file__).parents[2]
needs_posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a user would, in a folder of its own."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(code))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))}
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=90, cwd=tmp_path, env=env,
        start_new_session=True,
    )  # fmt: skip


UNGUARDED = """
    import os, pathlib, sys
    from torch.utils.data import DataLoader
    from yolo_rocm import create_dataloader, patch_dataloader
    from tests.data.samples import Numbers
    print("top level")
    os.chdir("current")
    sys.path.insert(0, pathlib.Path("anywhere"))
    loader = create_dataloader(Numbers(), 10, num_workers=1, context="spawn")
    print(sum(len(batch["index"]) for batch in loader))
    with patch_dataloader("forkserver"):
        print(sum(len(batch["index"]) for batch in DataLoader(Numbers(), 10, num_workers=1)))
"""


def test_a_script_without_a_main_guard_trains_and_runs_once(tmp_path):
    """With our loader, spawned, and with torch's own under the policy, from the fork server.

    A `Path` in `sys.path` is a common mistake; files of the current folder may be named like Python's modules.
    """
    (tmp_path / "current").mkdir()
    for name in ("queue.py", "socket.py") if sys.version_info >= (3, 11) else ():
        (tmp_path / "current" / name).write_text("raise SystemError('in the current folder')")
    ended = run(UNGUARDED, tmp_path)
    assert ended.stdout.splitlines() == ["top level", "40", "40"], ended.stderr
    assert ended.returncode == 0


OWN_CLASS = """
    from yolo_rocm import create_dataloader
    from tests.data.samples import Numbers
    class Mine(Numbers):
        pass
    def main():
        loader = create_dataloader(Mine(), 10, num_workers=1)
        print(sum(len(batch["index"]) for batch in loader))
"""


@pytest.mark.once
def test_a_class_of_the_script_needs_the_guard_and_says_so_before_a_worker_starts(tmp_path):
    ended = run(OWN_CLASS + "    main()\n", tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert "LoaderError: train.py has no main guard." in ended.stderr
    assert 'under `if __name__ == "__main__":`' in ended.stderr
    assert "Workers need it for dataset: __main__.Mine." in ended.stderr
    guarded = run(OWN_CLASS + '    if __name__ == "__main__":\n        main()\n', tmp_path)
    assert guarded.stdout.strip() == "40", guarded.stderr


@needs_posix
def test_workers_import_no_trainer_no_script_and_start_no_gpu(tmp_path):
    code = """
    import json, sys
    from torch.utils.data import Dataset
    class Modules(Dataset):
        def __len__(self):
            return 1
        def __getitem__(self, index):
            real = [name for name in ["ultralytics.engine.trainer"] if name in sys.modules]
            real += [f for f in [getattr(sys.modules["__main__"], "__file__", None)] if f]
            import torch
            return json.dumps([real, "ultralytics.data.dataset" in sys.modules, torch.cuda.is_initialized()])
    """
    module = tmp_path / "modules_of_a_worker.py"
    module.write_text(textwrap.dedent(code))
    script = """
    from yolo_rocm.data.loader import PolicyLoader
    from yolo_rocm.data.policy import LoaderPolicy
    from yolo_rocm.ultralytics_hooks.datasets import MODULES
    from modules_of_a_worker import Modules
    loader = PolicyLoader(Modules(), policy=LoaderPolicy(workers=1, insist=True, modules=MODULES))
    print(next(iter(loader))[0])
    """
    ended = run(script, tmp_path)
    assert ended.stdout.splitlines()[-1] == "[[], true, false]", ended.stderr


SERVER = """
    import os, signal, time
    from multiprocessing import forkserver
    from yolo_rocm import create_dataloader
    from yolo_rocm.data.worker_start import _own_server, start_server
    from tests.data.samples import Numbers, worker_pids
    server, everybodys, heard = _own_server(), forkserver._forkserver, 0
    start_server(["torch", "no_such_module"])
    early = server._forkserver_pid
    for _ in range(5):
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            heard += 1
    loader = create_dataloader(Numbers(), 10, num_workers=2, context="forkserver")
    next(iter(loader))
    workers = worker_pids(loader)
    print(heard, early == server._forkserver_pid, everybodys._forkserver_pid)
    print({int(open(f"/proc/{pid}/stat").read().split()[3]) for pid in workers} == {early})
    loader.close()
    os.kill(early, signal.SIGKILL)
    while open(f"/proc/{early}/stat").read().split()[2] != "Z":
        pass
    print(sum(len(batch["index"]) for batch in loader), early != server._forkserver_pid, everybodys._forkserver_pid)
"""


@pytest.mark.once
@needs_posix
def test_a_server_started_early_is_used_hears_no_ctrl_c_and_is_replaced_when_it_dies(tmp_path):
    """The one that `multiprocessing` has for everybody is left alone."""
    ended = run(SERVER, tmp_path)
    assert ended.stdout.splitlines() == ["5 True None", "True", "40 True None"], ended.stderr
    assert ended.stderr == ""


@needs_posix
def test_without_a_fork_server_workers_are_spawned(monkeypatch):
    """As where the path of the temporary folder is too long for its socket."""

    class NoServer:
        set_forkserver_preload = print

        def ensure_running(self):
            raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(worker_start, "_own_server", NoServer)
    lines: list[str] = []
    loader = create_dataloader(Numbers(), 10, num_workers=1, context="forkserver", tell=lines.append)
    assert sum(len(batch["index"]) for batch in loader) == 40
    loader.close()
    assert lines == ["the fork server cannot start (AF_UNIX path too long): workers are spawned, which takes longer"]


@pytest.mark.once
@needs_posix
def test_cycles_closed_with_batches_in_flight_leave_nothing(capfd):
    pids, descriptors = {os.getpid()}, None
    for cycle in range(6):
        loader = create_dataloader(Numbers(400, 1 << 20), 8, num_workers=2, context="forkserver")
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        workers = [worker.process._popen for worker in loader.iterator.pool._workers]
        pids.update(worker_pids(loader))
        del batches
        loader.close()
        assert {popen.returncode for popen in workers} <= {0, -signal.SIGKILL}
        gc.collect()
        if cycle == 0:
            descriptors = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1
    # By the names torch gives its segments: other processes use /dev/shm at the same time.
    names = os.listdir("/dev/shm")
    assert [name for name in names if any(name.startswith(f"torch_{pid}_") for pid in pids)] == []
    assert "terminate called" not in capfd.readouterr().err


LEFT = """
    import time
    from yolo_rocm import create_dataloader
    from tests.data.samples import Numbers, late, worker_pids
    loader = create_dataloader(Numbers(4000), 8, num_workers=2, context="fork", worker_init_fn=late)
    next(iter(loader))
    print(*worker_pids(loader), flush=True)
    time.sleep(600)
"""


def is_there(pid: int) -> bool:
    """Return whether a process runs. Where nobody waits for orphans, as in many containers, dead ones stay listed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: list[int], seconds: float) -> list[int]:
    """Return those that are still there after a while."""
    limit = time.monotonic() + seconds
    while any(is_there(pid) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.05)
    return [pid for pid in pids if is_there(pid)]


@pytest.mark.once
@needs_posix
def test_a_killed_parent_leaves_no_worker(tmp_path):
    """Nor one that was still starting when the parent died."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(LEFT))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    assert wait_until_gone(pids, 20) == []
