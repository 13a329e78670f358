"""The built site taken apart with the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path

# What a browser loads with a page; a link that is only shown is not one of these.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
NOT_SHOWN = ("script", "style", "title", "template")


@dataclass(frozen=True)
class Site:
    """A site.

    Attributes:
        root: Its folder.
        said: The exit code of the build, then what it wrote.
    """

    root: Path
    said: str

    @cached_property
    def pages(self) -> dict[str, Html]:
        """Every page by its place in the site."""
        return {path.relative_to(self.root).as_posix(): read(path) for path in sorted(self.root.rglob("*.html"))}


@dataclass
class Html(HTMLParser):
    """A page.

    Attributes:
        ids: Its anchors.
        links: Where its links lead.
        loaded: What it loads.
        text: What a reader sees, on one line.
    """

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._words: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        values = dict(attributes)
        if values.get("id"):
            self.ids.append(values["id"] or "")
        if tag == "a" and values.get("href") is not None:
            self.links.append(values["href"] or "")
        if tag == "link" and values.get("rel") not in ("next", "prev", "search", "index"):
            self.loaded.append(values.get("href") or "")
        if values.get(LOADED.get(tag, "")):
            self.loaded.append(values[LOADED[tag]] or "")
        if tag in NOT_SHOWN:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of what is not shown."""
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        """Note what is shown."""
        if not self._inside:
            self._words.append(data)

    def close(self) -> None:
        """Put the text together."""
        super().close()
        self.text = " ".join("".join(self._words).split())


def read(path: Path) -> Html:
    """Read a page."""
    page = Html()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page
