"""What axe-core finds wrong in the pages of the theme, mended in the files."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

SIGNATURE = re.compile(r'(<span class="sig-paren">\(</span>\s*)<dl>(.*?)</dl>', re.DOTALL)
"""The parameters of a long signature, which Sphinx writes as definitions without terms."""


def mended(page: str) -> str:
    """Return a page whose code can be scrolled by keys, and whose landmarks and headings have names and levels."""
    page = SIGNATURE.sub(lambda found: found[1] + lines(found[2]), page)
    page = page.replace("<pre>", '<pre tabindex="0">')
    page = page.replace('role="heading">', 'role="heading" aria-level="2">')
    return page.replace('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">')


def lines(parameters: str) -> str:
    """Return parameters, one on each line."""
    return parameters.replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")


def mend_pages(app: Sphinx, failure: Exception | None) -> None:
    """Mend the pages of the documents; a page that was mended stays as it is."""
    if failure is not None or app.builder.format != "html":
        return
    for name in (*app.env.found_docs, "search", "genindex", "py-modindex"):
        path = Path(app.outdir, f"{name}.html")
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if (new := mended(old)) != old:
            path.write_text(new, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the event."""
    app.connect("build-finished", mend_pages)
