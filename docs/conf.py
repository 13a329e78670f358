"""How Sphinx makes the web site; `docs/making/site.py` starts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

_VERSION = Path(__file__).resolve().parents[1] / "yolo_rocm" / "_version.py"

project = "yolo_rocm"
(release,) = re.findall(r'^__version__ = "(.+)"$', _VERSION.read_text(encoding="utf-8"), re.MULTILINE)
extensions = ["myst_parser"]
smartquotes = False  # commands stay as they are typed
myst_heading_anchors = 4  # pages link to headings as code hosts name them

html_theme = "furo"
html_title = f"yolo_rocm {release}"
html_static_path = ["making/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False


def setup(app: Any) -> None:
    """Connect what is ours."""
    app.connect("doctree-read", _add_anchors)


def _add_anchors(app: Any, doctree: Any) -> None:
    """Add the anchors of code hosts, `#type_traits` where docutils says `#type-traits`, and one for each error."""
    for name, (_, own, _) in app.env.metadata[app.env.docname].get("myst_slugs", {}).items():
        if name not in doctree.ids:
            doctree.ids[own]["ids"].append(name)
    if app.env.docname == "docs/api":
        for body in doctree.ids["errors"].findall(nodes.tbody):
            for row in body:
                row["ids"].append(row[0].astext().lower())
