"""The order of pages: `navigation` of conf.py, added to pages as toctrees when they are read."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

TO_THE_START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>chainrule</title>
<meta http-equiv="refresh" content="0; url={start}.html"><a href="{start}.html">chainrule</a></html>
"""


def add_toctrees(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the pages below this one; those that the text lists itself are not shown twice."""
    for caption, pages in app.config.navigation.get(docname, {}).items():
        entries = "\n".join(f"/{page}" for page in pages)
        options = ":hidden:\n:glob:\n" + (f":caption: {caption}\n" if caption else "")
        source[0] += f"\n\n```{{toctree}}\n{options}\n{entries}\n```\n"


def write_root_page(app: Sphinx, failure: Exception | None) -> None:
    """Let the root of the site lead to its start."""
    if failure is None and app.builder.format == "html":
        page = TO_THE_START.format(start=app.config.root_doc)
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Declare the setting and connect the events."""
    app.add_config_value("navigation", {}, "env")
    app.connect("source-read", add_toctrees)
    app.connect("build-finished", write_root_page)
