#!/usr/bin/env python3
"""Make the generated parts of README.md and of the pages in this folder again from the code and the benchmarks.

`python docs/generate.py` writes what has changed; with `--check` it writes nothing, names the files that are stale and
exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parent
PROJECT: Final = DOCS.parent
sys.path[:0] = [path for path in (str(DOCS), str(PROJECT)) if path not in sys.path]

from making import (  # noqa: E402
    api,
    benchmarks,
    commands,
    compiled,
    compiled_hip,
    containers,
    engines,
    environment,
    evidence,
    failures,
    install,
    picture_convolutions,
    picture_steps,
    presets,
)
from making.blocks import Maker, filled  # noqa: E402

# Every block that a page may hold, by name.
BLOCKS: Final[Mapping[str, Maker]] = {
    "cards": lambda: presets.cards(DOCS),
    "presets": presets.families,
    "preset-keys": presets.keys,
    "targets": install.targets,
    "stacks": install.stacks,
    "before": install.before,
    "commands-multi-arch": lambda: install.commands("multi-arch", install.LINUX, "RX 7900 XTX"),
    "commands-windows": lambda: install.commands("windows", install.WINDOWS, "RX 7900 XTX"),
    "commands-rx5000": lambda: install.commands("rx5000", install.LINUX, "RX 5600 XT"),
    "commands-strix-halo": lambda: install.commands("strix-halo", install.LINUX, "Ryzen AI Max+ 395"),
    "commands-mi300x": lambda: install.commands("mi300x", install.LINUX, "MI300X"),
    "commands-cpu": lambda: install.commands("cpu", install.LINUX, "cpu"),
    "engines": engines.engines,
    "algorithms": engines.algorithms,
    "limits": engines.limits,
    "compiled": lambda: compiled.compiled(DOCS),
    "rungs": lambda: compiled.rungs(DOCS),
    "hip-compiled": lambda: compiled_hip.compiled(DOCS),
    "hip-executed": lambda: compiled_hip.executed(DOCS),
    "failures": failures.failures,
    "checks": failures.checks,
    "own-variables": environment.own,
    "preset-variables": environment.of_presets,
    "allowed-variables": environment.allowed,
    "moments": environment.moments,
    "benchmarks": lambda: benchmarks.tables(DOCS / "benchmarks"),
    "certificates": evidence.certificates,
    "commands": commands.commands,
    "api": api.api,
}
# Files that are made as a whole.
FILES: Final[Mapping[Path, Maker]] = {
    DOCS / "images" / "convolutions.svg": lambda: picture_convolutions.convolutions(DOCS / "benchmarks"),
    DOCS / "images" / "steps.svg": lambda: picture_steps.steps(DOCS / "benchmarks"),
    **{
        PROJECT / "examples" / "containers" / f"Containerfile.{name}": partial(containers.containerfile, name)
        for name in containers.IMAGES
    },
}


def pages() -> list[Path]:
    """Return the pages that may hold blocks."""
    return [PROJECT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "start").glob("*.md"))]


@contextmanager
def _nobodys_settings() -> Iterator[None]:
    """Keep the presets and choices of whoever runs this out of the pages."""
    names = ("YOLO_ROCM_CONFIG", "YOLO_ROCM_PRESET", "YOLO_ROCM")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    with tempfile.TemporaryDirectory() as empty:
        os.environ["YOLO_ROCM_CONFIG"] = empty
        try:
            yield
        finally:
            del os.environ["YOLO_ROCM_CONFIG"]
            os.environ.update(before)


def stale() -> dict[Path, str]:
    """Return the files that are not as they would be made now, with what they ought to hold."""
    found: dict[Path, str] = {}
    with _nobodys_settings():
        for path in pages():
            old = path.read_text(encoding="utf-8")
            new = filled(old, BLOCKS)
            if new != old:
                found[path] = new
        for path, maker in FILES.items():
            new = maker()
            if not path.exists() or path.read_text(encoding="utf-8") != new:
                found[path] = new
    return found


def main(words: list[str] | None = None) -> int:
    """Write or check; return 1 where something was stale and was not written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    options = parser.parse_args(words)
    found = stale()
    for path, text in found.items():
        print(f"{'stale' if options.check else 'written'}: {path.relative_to(PROJECT).as_posix()}")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    if options.check and found:
        print("Run `python docs/generate.py` and commit what it writes.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
