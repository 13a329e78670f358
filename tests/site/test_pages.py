"""The site as files: built without a warning, whole, every link leads somewhere, nothing comes from a network."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pytest

import yolo_rocm

from ..pages import pages
from ..tables import each_row

pytestmark = pytest.mark.once

SOURCES = pages()


def test_it_is_built_without_a_warning(site):
    assert site.said == "0\n"


def test_every_link_and_anchor_leads_somewhere(site):
    wrong = []
    for name, page in site.pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme in ("https", "data") or parts.netloc:
                continue
            target = (site.root / name).parent / unquote(parts.path) if parts.path else site.root / name
            target = target.resolve()
            if not target.is_file():
                wrong.append(f"{name}: {link}")
            elif parts.fragment:
                there = site.pages[target.relative_to(site.root.resolve()).as_posix()]
                if unquote(parts.fragment) not in there.ids:
                    wrong.append(f"{name}: {link}")
    assert wrong == []
    assert sum(len(page.links) for page in site.pages.values()) > 4000


@each_row("source", SOURCES, ids=[each.name for each in SOURCES])
def test_a_page_is_there_with_all_its_words_and_without_its_marks(source, site):
    from docs.making.markdown import slug

    page = site.pages[source.name.removesuffix(".md") + ".html"]
    assert "<!--" not in page.text
    assert "made by docs/generate.py" not in page.text
    assert [words for words in source.inline if words not in page.text] == []
    for _, block in source.blocks:
        assert " ".join(block.split()) in page.text
    # Where a page on a code host is linked to, the same anchor leads to the same heading here.
    assert {slug(heading) for heading in source.headings} <= set(page.ids)


def test_the_first_page_leads_to_every_page(site):
    linked = {link for link in site.pages["index.html"].links if ":" not in link}
    assert {source.name.removesuffix(".md") + ".html" for source in SOURCES} | {"CHANGELOG.html"} <= linked


def test_every_public_name_has_an_anchor(site):
    names = {name.lower() for name in yolo_rocm.__all__ if name != "__version__"}
    assert names <= set(site.pages["docs/api.html"].ids)


def test_nothing_is_loaded_from_a_network(site):
    loaded = {link for page in site.pages.values() for link in page.loaded}
    assert len(loaded) > 10
    assert [link for link in loaded if urlsplit(link).scheme not in ("", "data") or urlsplit(link).netloc] == []
    for sheet in site.root.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")) == []
