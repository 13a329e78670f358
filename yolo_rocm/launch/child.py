"""`python -m yolo_rocm.launch.child ...`: Ultralytics' command line under the preset of the process that started it."""

from __future__ import annotations

import json
import os
import sys

from ..api import everywhere
from ..session.given import CHILD_VARIABLE


def main() -> None:
    """Run the `yolo` command given on the command line under the session described in the environment."""
    described = json.loads(os.environ.get(CHILD_VARIABLE, "{}"))
    with everywhere(described.get("preset") or "auto", described.get("rocm")):
        from ..ultralytics_hooks.children import run_command_line

        run_command_line(sys.argv[1:])


if __name__ == "__main__":
    main()
