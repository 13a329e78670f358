"""The start method, and main scripts that workers can import or cannot."""

from __future__ import annotations

import ast
import os
import py_compile
import runpy
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from yolo_rocm.data.main_guard import explained, main_problem

REPOSITORY = str(Path(__file__).parents[2])

TOOLS = """
import sys
from yolo_rocm.data.main_guard import main_problem

seen = []

def go():
    seen.append(main_problem())
    print(repr(seen[-1]), flush=True)
"""


@pytest.fixture
def foreseen(tmp_path, monkeypatch):
    """Return a function that runs a script as the main module of this process."""
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tools", raising=False)

    def run(text: str) -> str | None:
        (tmp_path / "train.py").write_text(text)
        runpy.run_path(str(tmp_path / "train.py"), run_name="__main__")
        return sys.modules["tools"].seen[-1]

    yield run
    sys.modules.pop("tools", None)


def outcome(arguments: list[str], folder: Path, text: str | None = None) -> str | None:
    """Run python; return what was foreseen."""
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
}


def script(body: str) -> str:
    return "import multiprocessing\nimport sys\n\nfrom tools import go\n\n" + textwrap.dedent(body)


@pytest.mark.parametrize("name", SAFE)
def test_guarded_scripts(foreseen, name):
    assert foreseen(script(SAFE[name])) is None


@pytest.mark.parametrize("name", UNSAFE)
def test_unguarded_scripts(foreseen, name):
    text = script(UNSAFE[name])
    problem = foreseen(text)
    running = int(problem.removeprefix("train.py, line ").partition(",")[0])
    assert any(word in text.splitlines()[running - 1] for word in ("go()", "main()", "class Training"))
    assert 'under `if __name__ == "__main__":`' in problem
    assert "workers=0" in problem


def test_a_thread_without_a_guard(foreseen):
    thread = "import threading\nthread = threading.Thread(target=go)\nthread.start()\nthread.join()\n"
    assert foreseen(script(thread)).startswith("train.py, line ")


def test_real_scripts_and_modules(tmp_path):
    (tmp_path / "train.py").write_text(script(SAFE["function under the guard"]))
    assert outcome(["train.py"], tmp_path) is None
    (tmp_path / "train.py").write_text(script(UNSAFE["no guard"]))
    for arguments in (["train.py"], ["-m", "train"]):
        assert outcome(arguments, tmp_path).startswith("train.py, line 7, ")


@pytest.mark.parametrize("arguments", [["-"], ["-c", script(UNSAFE["no guard"])]])
def test_what_is_typed_defines_nothing_for_workers(tmp_path, arguments):
    assert "`python -c`" in outcome(arguments, tmp_path, script(SAFE["guard"]))


def test_a_package_defines_nothing_for_workers(tmp_path):
    (tmp_path / "program").mkdir()
    (tmp_path / "program/__main__.py").write_text(script(UNSAFE["no guard"]))
    assert "__main__.py defines" in outcome(["-m", "program"], tmp_path)


def test_compiled_and_frozen_programs_are_not_judged(tmp_path, foreseen, monkeypatch):
    (tmp_path / "train.py").write_text(script(UNSAFE["no guard"]))
    py_compile.compile(str(tmp_path / "train.py"), cfile=str(tmp_path / "compiled.pyc"))
    assert outcome(["compiled.pyc"], tmp_path) is None
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert foreseen(script(UNSAFE["no guard"])) is None


def test_a_notebook_defines_nothing_for_workers(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    assert "notebook" in main_problem()


def test_a_script_that_has_ended_is_not_judged(monkeypatch):
    main = types.ModuleType("__main__")
    main.__file__ = __file__
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert main_problem() is None


def test_other_errors_of_a_start_are_left_alone():
    with pytest.raises(RuntimeError, match="another"), explained():
        raise RuntimeError("another")
