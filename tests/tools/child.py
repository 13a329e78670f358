"""Programs that compile kernels, each in a copy of this process: a new one would import torch and Triton again."""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import sys
import traceback
from contextlib import redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch


class Ended(NamedTuple):
    """How a program ended.

    Attributes:
        returncode: Its exit code.
        stdout: What it printed.
        stderr: The exception that ended it.
    """

    returncode: int
    stdout: str
    stderr: str


def python(tmp_path: Path, program: str, *words: str) -> Ended:
    """Run a program with a cache of its own: what is compiled is compiled now, for a compiler and no interpreter."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, tmp_path, program, words))
    child.start()
    theirs.close()
    try:
        ended = Ended(*ours.recv())
    except EOFError:
        child.join()
        ended = Ended(child.exitcode or 0, "", "the process died")
    child.join()
    ours.close()
    return ended


def _run(answer: Connection, folder: Path, program: str, words: tuple[str, ...]) -> None:
    torch.set_num_threads(1)  # threads are not copied
    faulthandler.disable()  # pytest's would tell of an abort that is expected
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ.pop("TRITON_INTERPRET", None)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = ["-c", *words]
    printed, code, error = io.StringIO(), 0, ""
    try:
        with redirect_stdout(printed):
            exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        code, error = 1, traceback.format_exc()
    answer.send((code, printed.getvalue(), error))
    answer.close()
