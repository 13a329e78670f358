"""Main scripts that workers can import or cannot."""

from __future__ import annotations

import sys
import types

import pytest

from yolo_rocm.data.main_guard import main_problem

from ..tables import each_row

GUARDED = 'def main():\n    pass\n\nif __name__ == "__main__":\n    main()\n'


@pytest.fixture
def main_module(tmp_path, monkeypatch):
    """Return a function that makes a script, or what has none, the main module of this process."""

    def make(name: str | None, source: str = "", module: str | None = None) -> None:
        main = types.ModuleType("__main__")
        if name is not None:
            (tmp_path / name).write_text(source)
            main.__file__ = str(tmp_path / name)
        main.__spec__ = module and types.SimpleNamespace(name=module)
        monkeypatch.setitem(sys.modules, "__main__", main)

    return make


@each_row(
    ("script", "problem"),
    [
        (("train.py", GUARDED), None),
        (("train.py", "print(1)\n"), "train.py has no main guard. Workers need something that the script defines"),
        ((None,), "a notebook, standard input or `python -c` defines"),
        (("__main__.py", GUARDED, "program.__main__"), "__main__.py defines"),
    ],
)
def test_what_keeps_workers_from_importing_the_script(main_module, script, problem):
    main_module(*script)
    answer = main_problem()
    assert answer is None if problem is None else problem in answer
    if problem is not None:
        assert "or load without workers (`workers=0`)." in answer


def test_nothing_is_said_of_a_frozen_program_or_in_a_worker_that_imports_the_script(main_module, monkeypatch):
    main_module("train.py", "print(1)\n")
    process = sys.modules["multiprocessing"].current_process()
    monkeypatch.setattr(process, "_inheriting", True, raising=False)
    assert main_problem() is None
    monkeypatch.undo()
    main_module("train.py", "print(1)\n")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert main_problem() is None
