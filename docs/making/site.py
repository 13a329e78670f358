"""The pages as a web site that needs no network: `python -m docs.making.site OUT`, with the extra `docs` installed.

Pages are for readers on a code host, and stay as they are: Sphinx gets a folder with the same layout, in which all
their links lead somewhere. A source file that a page may link to is a page there, named as the file; so is a folder.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .landing import GROUPS, landing

PROJECT: Final = Path(__file__).resolve().parents[2]
# What pages link to besides pages: pictures and measurements as they are, and texts that become pages.
_AS_THEY_ARE: Final = ("docs/images/*", "docs/*.csv", "docs/benchmarks/*.csv", "examples/*.ipynb")
_TEXTS: Final = ("LICENSE", "examples/*.py", "examples/*.sh", "examples/*.yaml", "configs/*/*.yaml", "configs/*/*.json")
_LANGUAGES: Final = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}


def prepare(source: Path) -> None:
    """Fill an empty folder with what Sphinx reads."""
    for path in (*_pages(), *_found(_AS_THEY_ARE)):
        _write(source / path.relative_to(PROJECT), path.read_bytes())
    folders: dict[Path, list[str]] = {}
    for path in _found(_TEXTS):
        name = path.relative_to(PROJECT)
        _write(source / f"{name}.md", _text_page(name.as_posix(), path.read_text(encoding="utf-8"), path.suffix))
        folders.setdefault(name.parent, []).append(name.name)
    for folder, names in folders.items():
        if folder.parts[:1] == ("configs",):
            links = "\n".join(f"- [{name}]({folder.name}/{name})" for name in names)
            _write(source / f"{folder}.md", f"---\norphan: true\n---\n# {folder.as_posix()}\n\n{links}\n")
    _write(source / "index.md", landing({page: _title(PROJECT / page) for pages in GROUPS.values() for page in pages}))


def build(out: Path) -> int:
    """Build the site into a folder; return Sphinx's exit code, which is not 0 after a warning."""
    with tempfile.TemporaryDirectory(prefix="yolo_rocm_site_") as work:
        source = Path(work) / "source"
        prepare(source)
        options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(PROJECT / "docs"), "-d", f"{work}/doctrees"]
        return subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(out)], check=False).returncode


def main() -> int:
    """Build the site where the command line says."""
    parser = argparse.ArgumentParser(description="Build the documentation as a web site.")
    parser.add_argument("out", type=Path, help="a folder, e.g. build/site, which git ignores")
    return build(parser.parse_args().out)


def _pages() -> Iterator[Path]:
    yield from (PROJECT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from _found(("docs/*.md", "docs/start/*.md", "examples/*.md"))


def _found(patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(PROJECT.glob(pattern))


def _title(page: Path) -> str:
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{page} has no title: its first line should be `# ` and some words")
    return found[1]


def _text_page(name: str, text: str, suffix: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=2))
    return f"---\norphan: true\n---\n# {name}\n\n{fence}{_LANGUAGES.get(suffix, 'text')}\n{text}\n{fence}\n"


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    sys.exit(main())
