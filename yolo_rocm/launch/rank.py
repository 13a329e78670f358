"""`python -m yolo_rocm.launch.rank FILE`: one process of Ultralytics' multi-GPU launcher, under its parent's preset."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time

from ..errors import YoloRocmError
from ..session.given import described
from ..session.run import run


def main() -> None:
    """Run the file that Ultralytics has written for its ranks under the session described in the environment."""
    file = sys.argv[1]
    sys.argv = sys.argv[1:]
    session, arguments, parent = described()
    _end_with_parents(parent)
    try:
        with run(session, arguments, trains=True):
            runpy.run_path(file, run_name="__main__")
    except YoloRocmError as error:
        from ..utils.process_group import is_first_to

        if is_first_to("refusal"):
            sys.stderr.write(f"error: {error}\n")
        sys.exit(1)


def _end_with_parents(training: int | None) -> None:
    """End this process when its launcher, or the process that called `train`, is gone without a word.

    A launcher that is killed tells nobody, and ranks would wait for each other for hours.
    """
    import psutil  # Ultralytics requires it

    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher and (training is None or psutil.pid_exists(training)):
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="rank-watch", daemon=True).start()


if __name__ == "__main__":
    main()
