"""The start method, and main scripts that stand spawned workers or do not."""

from __future__ import annotations

import ast
import importlib.machinery
import multiprocessing
import os
import py_compile
import runpy
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from yolo_rocm.data.main_guard import main_guard_problem, setup_multiprocessing
from yolo_rocm.errors import ConfigError

REPOSITORY = str(Path(__file__).parents[2])

# Notes what is foreseen, then lets multiprocessing show what really becomes of a spawned worker.
TOOLS = """
import multiprocessing, os, sys
from yolo_rocm.data.main_guard import main_guard_problem

seen = []

def go():
    seen.append(main_guard_problem() or "fine")
    worker = multiprocessing.get_context("spawn").Process(target=os.getpid)
    worker.start()
    worker.join()
    seen.append(worker.exitcode == 0)
    print(repr(tuple(seen)), flush=True)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a function that runs a script as the main module of this process."""
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)

    def run(text: str) -> tuple[str, bool]:
        (tmp_path / "train.py").write_text(text)
        runpy.run_path(str(tmp_path / "train.py"), run_name="__main__")
        return tuple(sys.modules["tools"].seen)

    yield run
    sys.modules.pop("tools", None)


def outcome(arguments: list[str], folder: Path, text: str | None = None) -> tuple[str, bool]:
    """Run python; return what was foreseen and whether the worker came through."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}"}
    (folder / "tools.py").write_text(TOOLS)
    command = [sys.executable, *arguments]
    result = subprocess.run(
        command, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=60
    )
    assert result.stdout, result.stderr
    return ast.literal_eval(result.stdout.splitlines()[-1])


SAFE = {
    "guard": """
        if __name__ == "__main__":
            go()
        """,
    "one line": """
        if __name__ == "__main__": go()
        """,
    "function under the guard": """
        def main():
            go()

        if "__main__" == __name__:
            main()
        """,
    "try under the guard": """
        if __name__ == "__main__":
            try:
                with open(__file__):
                    go()
            finally:
                pass
        """,
    "guard under try": """
        try:
            if __name__ == "__main__" and len(sys.argv) < 99:
                go()
        except ValueError:
            pass
        """,
    "guard inside the function": """
        def main():
            if __name__ == "__main__":
                go()

        main()
        """,
    "else of the opposite": """
        if __name__ != "__main__":
            pass
        else:
            go()
        """,
    "elif": """
        if len(sys.argv) > 99:
            pass
        elif not __name__ != "__main__":
            go()
        """,
    "one of several names": """
        if __name__ in {"__main__", "train"}:
            go()
        """,
    "process name": """
        if multiprocessing.current_process().name == "MainProcess":
            go()
        """,
    "short circuit": """
        __name__ == "__main__" and go()
        """,
    "thread under the guard": """
        import threading

        if __name__ == "__main__":
            thread = threading.Thread(target=go)
            thread.start()
            thread.join()
        """,
    "call over lines": """
        if __name__ == "__main__":
            (
                go
                )(
            )
        """,
}
UNSAFE = {
    "no guard": """
        go()
        """,
    "no guard, in a function": """
        def main():
            go()

        main()
        """,
    "after the guard": """
        if __name__ == "__main__":
            pass
        go()
        """,
    "another condition": """
        if __name__ != "train":
            go()
        """,
    "or": """
        if __name__ == "__main__" or len(sys.argv) < 99:
            go()
        """,
    "wrong branch": """
        if __name__ == "nothing":
            pass
        else:
            go()
        """,
    "class body": """
        class Training:
            result = go()
        """,
    "decorator": """
        @(lambda function: go())
        def main():
            if __name__ == "__main__":
                pass
        """,
    "parent process": """
        if multiprocessing.parent_process() is None:
            go()
        """,
}


def script(body: str) -> str:
    return "import multiprocessing\nimport sys\n\nfrom tools import go\n\n" + textwrap.dedent(body)


@pytest.mark.parametrize("name", SAFE)
def test_guarded_scripts(here, name):
    assert here(script(SAFE[name])) == ("fine", True)


@pytest.mark.parametrize("name", UNSAFE)
def test_unguarded_scripts(here, name):
    text = script(UNSAFE[name])
    foreseen, came_through = here(text)
    assert not came_through
    running = int(foreseen.removeprefix("train.py, line ").partition(",")[0])
    assert any(word in text.splitlines()[running - 1] for word in ("go()", "main()", "class Training"))
    assert 'under `if __name__ == "__main__":`' in foreseen
    assert "workers=0" in foreseen


def test_a_thread_without_a_guard(here):
    # The worker itself survives: what the script starts again dies in a thread of its own.
    thread = "import threading\nthread = threading.Thread(target=go)\nthread.start()\nthread.join()\n"
    assert here(script(thread))[0].startswith("train.py, line ")


def test_real_scripts(tmp_path):
    (tmp_path / "train.py").write_text(script(SAFE["function under the guard"]))
    assert outcome(["train.py"], tmp_path) == ("fine", True)
    (tmp_path / "train.py").write_text(script(UNSAFE["no guard"]))
    foreseen, came_through = outcome(["train.py"], tmp_path)
    assert foreseen.startswith("train.py, line 7, ")
    assert not came_through


@pytest.mark.parametrize("arguments", [["-"], []])
def test_standard_input(tmp_path, arguments):
    foreseen, came_through = outcome(arguments, tmp_path, script(SAFE["guard"]))
    assert "standard input" in foreseen
    assert not came_through


def test_a_command_runs_workers_but_defines_nothing_for_them(tmp_path):
    foreseen, came_through = outcome(["-c", script(UNSAFE["no guard"])], tmp_path)
    assert "`python -c`" in foreseen
    assert came_through


def test_a_module(tmp_path):
    (tmp_path / "train.py").write_text(script(UNSAFE["no guard"]))
    foreseen, came_through = outcome(["-m", "train"], tmp_path)
    assert foreseen.startswith("train.py, line 7, ")
    assert not came_through
    (tmp_path / "train.py").write_text(script(SAFE["guard"]))
    assert outcome(["-m", "train"], tmp_path) == ("fine", True)


def test_a_package_is_left_alone_by_multiprocessing(tmp_path):
    (tmp_path / "program").mkdir()
    text = script("print(repr(tools.main_guard_problem(uses_main=True)))\ngo()\n")
    (tmp_path / "program/__main__.py").write_text(f"import tools\n{text}")
    assert outcome(["-m", "program"], tmp_path) == ("fine", True)
    assert outcome(["program"], tmp_path) == ("fine", True)


def test_launchers(tmp_path):
    (tmp_path / "yolo-rocm").write_text(script(SAFE["guard"]))
    assert outcome(["yolo-rocm"], tmp_path) == ("fine", True)
    (tmp_path / "yolo-rocm").write_text(script("sys.exit(go())"))
    foreseen, came_through = outcome(["yolo-rocm"], tmp_path)
    assert "python -m PROGRAM" in foreseen
    assert not came_through


def test_compiled_programs_are_not_judged(tmp_path):
    (tmp_path / "train.py").write_text(script(SAFE["guard"]))
    py_compile.compile(str(tmp_path / "train.py"), cfile=str(tmp_path / "compiled.pyc"))
    assert outcome(["compiled.pyc"], tmp_path) == ("fine", True)


def test_frozen_programs_are_not_judged(here, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert here(script(UNSAFE["no guard"]))[0] == "fine"


# What a notebook kernel does: another module takes the name __main__, has no file, and cells run in it.
NOTEBOOK = """
import sys, types
sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile("from tools import go; go()", "<ipython-input-1>", "exec"), vars(sys.modules["__main__"]))
"""


def test_a_notebook_starts_workers_but_defines_nothing_for_them(tmp_path):
    (tmp_path / "kernel.py").write_text(NOTEBOOK)
    foreseen, came_through = outcome(["kernel.py"], tmp_path)
    assert "notebook" in foreseen
    assert came_through


def test_a_notebook_is_a_problem_if_workers_may_need_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    assert "notebook" in main_guard_problem()
    assert "notebook" in main_guard_problem(uses_main=True)
    assert main_guard_problem(uses_main=False) is None


def test_a_package_is_a_problem_if_workers_need_it(monkeypatch):
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__ = importlib.machinery.ModuleSpec("program.__main__", None), __file__
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert "Workers cannot find" in main_guard_problem(uses_main=True)
    assert main_guard_problem() is None
    assert main_guard_problem(uses_main=False) is None


def test_a_script_that_has_ended_is_not_judged(monkeypatch):
    main = types.ModuleType("__main__")
    main.__file__ = __file__
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert main_guard_problem() is None


def test_a_worker_that_imports_the_script_says_so(monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    assert "still importing the main script" in main_guard_problem()


def test_under_pytest_nothing_runs_again():
    assert main_guard_problem(uses_main=False) is None


@pytest.fixture
def start_method():
    before = multiprocessing.get_start_method(allow_none=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def test_the_start_method_is_set_repeated_and_undone(start_method, monkeypatch, caplog):
    multiprocessing.set_start_method("forkserver", force=True)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    first, second = setup_multiprocessing(), setup_multiprocessing("spawn")
    assert multiprocessing.get_start_method() == "spawn"
    assert (first.method, first.previous, first.note) == ("spawn", "forkserver", "")
    assert (second.previous, second.note) == ("spawn", "")
    assert str(first) == "start method of processes: spawn (was forkserver)"
    assert not caplog.records
    first.undo()
    assert multiprocessing.get_start_method() == "forkserver"


def test_after_torch_it_says_what_it_does_not_reach(start_method, monkeypatch, caplog):
    multiprocessing.set_start_method("forkserver", force=True)
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert "keep theirs" in setup_multiprocessing().note
    assert "keep theirs" in caplog.text
    assert setup_multiprocessing().note == ""


def test_an_unset_method_is_unset_again(start_method):
    multiprocessing.set_start_method(None, force=True)
    done = setup_multiprocessing()
    assert done.previous is None
    assert "Python's default" in str(done)
    done.undo()
    assert multiprocessing.get_start_method(allow_none=True) is None


def test_an_unknown_method():
    with pytest.raises(ConfigError, match="did you mean 'spawn'"):
        setup_multiprocessing("spwan")


def test_torch_is_not_imported():
    code = "import yolo_rocm.data.main_guard as s, sys; s.setup_multiprocessing(); print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": REPOSITORY}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "False", result.stderr
