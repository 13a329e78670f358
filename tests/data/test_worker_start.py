"""How workers start and end: without the user's script, from a server started early, and without a trace."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

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
    from torch.utils.data import DataLoader
    from yolo_rocm import create_dataloader, patch_dataloader
    from tests.data.samples import Numbers
    print("top level")
    loader = create_dataloader(Numbers(), 10, num_workers=1, context="spawn")
    print(sum(len(batch["index"]) for batch in loader))
    with patch_dataloader("forkserver"):
        print(sum(len(batch["index"]) for batch in DataLoader(Numbers(), 10, num_workers=1)))
"""


def test_a_script_without_a_main_guard_trains_and_runs_once(tmp_path):
    """With our loader, spawned, and with torch's own under the policy, from the fork server."""
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


@pytest.mark.once
def test_a_guard_that_does_not_guard_is_explained_in_the_worker(tmp_path):
    """Nothing can be foreseen from this condition: Python's own refusal says it, in our words."""
    ended = run(OWN_CLASS + '    if __name__ != "train":\n        main()\n', tmp_path)
    assert ended.returncode == 1
    assert "LoaderError: The script starts workers again while a worker imports it." in ended.stderr
    assert 'under `if __name__ == "__main__":`' in ended.stderr
    assert "bootstrapping phase" not in ended.stderr
    assert "it could not start, its error is above" in ended.stderr.splitlines()[-1]


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
    import os, signal, sys
    from multiprocessing import forkserver
    from yolo_rocm import create_dataloader
    from yolo_rocm.data.worker_start import _own_server, start_server
    from tests.data.samples import Numbers, worker_pids
    print("top level")
    server, everybodys = _own_server(), forkserver._forkserver
    start_server(["torch", "no_such_module"])
    early = server._forkserver_pid
    loader = create_dataloader(Numbers(), 10, num_workers=2, context="forkserver")
    next(iter(loader))
    workers = worker_pids(loader)
    print(early == server._forkserver_pid, everybodys._forkserver_pid)
    print({int(open(f"/proc/{pid}/stat").read().split()[3]) for pid in workers} == {early})
    loader.close()
    os.kill(early, signal.SIGKILL)
    while open(f"/proc/{early}/stat").read().split()[2] != "Z":
        pass
    print(sum(len(batch["index"]) for batch in loader), early != server._forkserver_pid, everybodys._forkserver_pid)
"""


@pytest.mark.once
@needs_posix
def test_a_server_started_early_is_used_and_replaced_when_it_dies_and_everybodys_own_is_left_alone(tmp_path):
    ended = run(SERVER, tmp_path)
    assert ended.stdout.splitlines() == ["top level", "True None", "True", "40 True None"], ended.stderr


LONG = """
    from yolo_rocm import create_dataloader
    from tests.data.samples import Numbers
    loader = create_dataloader(Numbers(), 10, num_workers=1, context="forkserver", tell=print)
    print(sum(len(batch["index"]) for batch in loader))
"""


@pytest.mark.once
@needs_posix
def test_a_temporary_folder_too_long_for_the_servers_socket_means_spawned_workers(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    line, total = run(LONG, tmp_path).stdout.splitlines()
    assert line == "the fork server cannot start (AF_UNIX path too long): workers are spawned, which takes longer"
    assert total == "40"


@pytest.mark.once
@needs_posix
def test_cycles_closed_with_batches_in_flight_leave_nothing(capfd):
    from yolo_rocm import create_dataloader

    from .samples import Numbers, worker_pids

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


# A signal between the last look at signals and the system call does not end a sleep: it takes many short ones.
CTRL_C = """
    import time
    from yolo_rocm import create_dataloader
    from tests.data.samples import Numbers, worker_pids
    loader = create_dataloader(Numbers(4000), 8, num_workers=2, context="{context}")
    for number, batch in enumerate(loader):
        if number == 2:
            print(*worker_pids(loader), flush=True)
            while True:
                time.sleep(0.1)
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
@pytest.mark.parametrize(("context", "deadly"), [("forkserver", "SIGINT"), ("fork", "SIGKILL")])
def test_ctrl_c_and_a_killed_parent_leave_no_worker_and_no_file(tmp_path, context, deadly):
    script, log = tmp_path / "train.py", tmp_path / "log"
    script.write_text(textwrap.dedent(CTRL_C.format(context=context)))
    temporary = Path(tempfile.mkdtemp())  # the fork server's socket must have a short path, tmp_path may be too long
    with log.open("w") as errors:
        parent = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
            start_new_session=True,
        )
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2, log.read_text()
    if deadly == "SIGKILL":
        parent.kill()
    else:
        os.killpg(parent.pid, getattr(signal, deadly))  # as a terminal does: to all of them
    parent.wait(30)
    assert wait_until_gone(pids, 20) == []
    # One traceback is the training process's own; a worker says nothing.
    assert log.read_text().count("Traceback") == (1 if deadly == "SIGINT" else 0), log.read_text()
    assert "loader-" not in log.read_text()
    temporary.rmdir()  # it is empty


EARLY = """
    import os, signal, time
    from yolo_rocm import create_dataloader
    from yolo_rocm.data.worker_start import _own_server, start_server
    from tests.data.samples import Numbers
    heard = 0
    start_server(["torch"])
    early = _own_server()._forkserver_pid
    for _ in range(5):
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            heard += 1
    loader = create_dataloader(Numbers(), 10, num_workers=1, context="forkserver")
    print(heard, sum(len(batch["index"]) for batch in loader), early == _own_server()._forkserver_pid)
"""


@pytest.mark.once
@needs_posix
def test_ctrl_c_is_heard_by_the_training_process_alone_while_workers_start(tmp_path):
    ended = run(EARLY, tmp_path)
    assert (ended.stdout, ended.stderr) == ("5 40 True\n", "")


@pytest.mark.once
@pytest.mark.parametrize("context", ["spawn", pytest.param("forkserver", marks=needs_posix)])
def test_what_python_passes_over_or_never_sees_in_the_search_path_does_not_reach_workers(tmp_path, context):
    """A `Path` in `sys.path` is a common mistake; files of the current folder may be named like Python's modules."""
    folder = tmp_path / "current"
    folder.mkdir()
    for name in ("queue.py", "socket.py") if sys.version_info >= (3, 11) else ():  # the script is in another folder
        (folder / name).write_text("raise SystemError('in the current folder')")
    first = f"""
    import os, pathlib, sys
    os.chdir({str(folder)!r})
    sys.path.insert(0, pathlib.Path("anywhere"))"""
    ended = run(first + LONG.replace("forkserver", context), tmp_path)
    assert (ended.stdout, ended.stderr) == ("40\n", "")


@pytest.mark.once
def test_nothing_that_only_posix_has_is_needed_to_import_the_loaders():
    code = "from multiprocessing import reduction; vars(reduction).pop('DupFd', None); import yolo_rocm.data.create"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
