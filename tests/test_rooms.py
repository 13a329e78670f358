"""The rooms of the package: which may import which, no circles, and a paragraph in each that says what lives there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .pages import PROJECT, page

pytestmark = pytest.mark.once

PACKAGE = PROJECT / "yolo_rocm"
# From top to bottom: a module imports its own room and rooms further down. The picture in docs/design.md has the same.
ROOMS = (
    "cli", "bench", "launch", "api", "inference", "session", "report", "diagnosis", "install", "ultralytics_hooks",
    "telemetry", "preset", "data", "graphs", "losses", "blocks", "norm", "conv", "engines", "hardware", "utils",
)  # fmt: skip
FOR_EVERYBODY = ("errors", "_version")
FACADE = ("yolo_rocm", "yolo_rocm.__main__")  # they name everything, and no room imports them
MOST_AT_THE_TOP = 8
PARAGRAPH_WORDS = 40


def modules(package: Path) -> dict[str, Path]:
    """Return every module below a package, by its whole name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield what a module imports anywhere: at its top, inside functions, for type checkers only."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def arrows(package: Path) -> dict[str, set[str]]:
    """Return which module of a package imports which others of it; to import one runs the packages it lies in."""
    known = modules(package)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        targets = imported(name, path)
        # A name inside a module counts as the module.
        inside = {target if target in known else target.rpartition(".")[0] for target in targets}
        inside |= {package for target in inside for package in packages(target) if not name.startswith(f"{package}.")}
        found[name] = {target for target in inside if target in known and target != name}
    return found


def packages(module: str) -> list[str]:
    """Return the packages that a module lies in, but for the one of everything."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts))]


def room(module: str) -> str:
    """Return the room of a module; the package itself has none."""
    return module.partition(".")[2].partition(".")[0]


def short(module: str) -> str:
    return module.partition(".")[2]


def upward(found: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the arrows that do not go down."""
    return {
        (short(module), short(target))
        for module, targets in found.items()
        if module not in FACADE
        for target in targets
        if room(target) not in (*FOR_EVERYBODY, room(module)) and not goes_down(room(module), room(target))
    }


def goes_down(above: str, below: str) -> bool:
    return above in ROOMS and below in ROOMS and ROOMS.index(above) < ROOMS.index(below)


def circles(found: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of modules each of which reaches all others of its group."""
    found = {module: targets - set(FACADE) for module, targets in found.items() if module not in FACADE}
    reached: dict[str, set[str]] = {}
    for module in found:
        waiting, seen = [module], set()
        while waiting:
            new = found[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[module] = seen
    return {
        frozenset(short(other) for other in reached[module] if module in reached[other])
        for module in found
        if module in reached[module]
    }


@pytest.fixture(scope="module")
def house() -> dict[str, set[str]]:
    return arrows(PACKAGE)


def test_every_arrow_goes_down(house):
    assert upward(house) == set()


def test_no_modules_import_each_other_in_a_circle(house):
    assert circles(house) == set()


def test_every_module_is_in_a_room(house):
    assert {room(module) for module in house} - {"", "__main__"} == {*ROOMS, *FOR_EVERYBODY}
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_AT_THE_TOP


def test_each_room_says_what_lives_there():
    brief = {
        name for name, path in modules(PACKAGE).items()
        if path.name == "__init__.py" and name != "yolo_rocm"
        and len((ast.get_docstring(tree(path)) or "").split()) < PARAGRAPH_WORDS
    }  # fmt: skip
    assert {short(name) for name in brief} == set()


def test_one_room_imports_ultralytics():
    """A release that has moved something is looked for there alone."""
    importing = {
        short(name) for name, path in modules(PACKAGE).items()
        if any(target.partition(".")[0] == "ultralytics" for target in imported(name, path))
    }  # fmt: skip
    assert {room(f"yolo_rocm.{name}") for name in importing} == {"ultralytics_hooks"}


def test_the_picture_has_the_rooms_in_the_same_order():
    design = page(PROJECT / "docs" / "design.md")
    picture = next(text for language, text in design.blocks if language == "text" and "ultralytics_hooks" in text)
    drawn = [word for line in picture.splitlines() if (word := line.split(maxsplit=1)[0]) in ROOMS]
    assert drawn == list(ROOMS)


def test_a_new_arrow_is_seen_wherever_it_is_written(tmp_path):
    """The check itself: at the top, inside a function, for type checkers, relative or not, of a module or a name."""
    package = tmp_path / "yolo_rocm"
    files = {
        "conv/__init__.py": "from . import plan",
        "conv/plan.py": "def f():\n    from ..session import Session",
        "engines/__init__.py": "if TYPE_CHECKING:\n    from yolo_rocm.conv.plan import P",
        "session/__init__.py": "from .. import conv, errors\nfrom ..utils.atomic import write\nimport yolo_rocm.api",
        "utils/atomic.py": "from ..errors import E\nfrom .. import __version__",
        "api.py": "import torch",
        "errors.py": "",
        "__init__.py": "from .api import train",
        "conv/loop.py": "from . import pool",
        "conv/pool.py": "from .loop import x",
        "conv/hip/__init__.py": "from . import launch",
        "conv/hip/launch.py": "from ..algorithms.base import Base",
        "conv/algorithms/__init__.py": "from ..hip.other import Other",
        "conv/algorithms/base.py": "",
        "conv/hip/other.py": "",
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    found = arrows(package)
    assert upward(found) == {
        ("conv.plan", "session"),
        ("engines", "conv"),
        ("engines", "conv.plan"),
        ("session", "api"),
        ("utils.atomic", ""),
    }
    assert circles(found) == {
        frozenset({"conv.loop", "conv.pool"}),
        frozenset({"conv", "conv.plan", "session"}),
        frozenset({"conv.hip", "conv.hip.launch", "conv.algorithms"}),  # by what runs before `base` and `other`
    }
