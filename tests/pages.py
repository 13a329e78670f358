"""The pages of the project taken apart: code blocks, inline code, headings and links."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# `yolo-rocm`, also of an environment, or the module started by Python or torchrun; up to a comment or the next command.
_COMMAND = re.compile(
    r"(?:(?<![\w/\\.-])yolo-rocm|(?<=bin/)yolo-rocm|(?<=Scripts\\)yolo-rocm|-m yolo_rocm)\s+(.*?)(?=\s+#|\s*&&|\s*\||$)"
)


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        path: Where it is.
        text: All of it.
        blocks: (language, text) of its code blocks.
        inline: Inline code outside of blocks, line breaks taken out.
        prose: The text without its code blocks.
    """

    path: Path
    text: str
    blocks: list[tuple[str, str]]
    inline: list[str]
    prose: str

    @property
    def name(self) -> str:
        """Where it is inside the project."""
        return self.path.relative_to(PROJECT).as_posix()

    @property
    def headings(self) -> list[str]:
        """Its headings, without their marks."""
        return _HEADING.findall(self.prose)

    @property
    def links(self) -> list[str]:
        """Where its links and pictures lead."""
        return _LINK.findall(_INLINE.sub("", self.prose))

    @property
    def commands(self) -> list[list[str]]:
        """Command lines of this package, in blocks and inline, each as its words after `yolo-rocm`."""
        lines = [
            line for language, text in self.blocks if language in ("bash", "powershell") for line in text.splitlines()
        ]
        found = [
            match[1] for line in [*lines, *self.inline] if not line.startswith("#") for match in _COMMAND.finditer(line)
        ]
        return [shlex.split(words) for words in found]


def page(path: Path) -> Page:
    """Read a page."""
    text = path.read_text(encoding="utf-8")
    # Inside a numbered step a block is indented as the step is.
    blocks = [
        (match["language"], re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE))
        for match in _FENCE.finditer(text)
    ]
    prose = _FENCE.sub("", text)
    inline = [" ".join(words.split()) for words in _INLINE.findall(prose)]
    return Page(path, text, blocks, inline, prose)


def pages() -> list[Page]:
    """Return all pages but the changelog, which speaks of what is past too."""
    return [
        page(PROJECT / "README.md"),
        *map(page, sorted((PROJECT / "docs").glob("*.md"))),
        *map(page, sorted((PROJECT / "docs" / "start").glob("*.md"))),
        page(PROJECT / "examples/README.md"),
        page(PROJECT / "CONTRIBUTING.md"),
        page(PROJECT / "SECURITY.md"),
    ]
