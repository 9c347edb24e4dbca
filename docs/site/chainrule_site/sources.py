"""Pages of source files: a link to code stays inside the site, and the reference leads to the line of a definition.

They are written without the theme, which takes a tenth of a second for a page, and again only where a file has
changed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[3]
SHOWN = (
    "src/chainrule",
    "examples",
    "recipes",
    "benchmarks",
    "reliability",
    "tests/contract",
    "tests/lectures",
    "tests/reliability",
    "docs/deploy",
)
FILES = (
    "pyproject.toml",
    "constraints.txt",
    "Makefile",
    "LICENSE",
    "tests/fast_run.toml",
    "tests/compile_kernels.py",
    "tests/test_backprop.py",
    "tests/explanation/test_diagnosis.py",
)
HIDDEN = {"__pycache__", "build", "data", ".pytest_cache", ".hypothesis"}
KINDS = (".py", ".pyi", ".toml", ".txt", ".html", ".js", ".css", ".c", ".service", "")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name} – chainrule</title>
<link rel="stylesheet" href="{root}_static/pygments.css">
<link rel="stylesheet" href="{root}_static/source.css"></head>
<body><script>document.body.dataset.theme = localStorage.getItem("theme") || "auto"</script>
<nav aria-label="Folders"><a href="{root}{start}.html">Documentation</a>{above}</nav>
<main><h1>{name}</h1>
{body}</main></body></html>
"""


def page_of(path: Path) -> str:
    """Return the name of the page that shows a file or folder."""
    return f"source/{path.relative_to(ROOT).as_posix()}"


def shown(path: Path) -> bool:
    """Whether a file or folder has a page: code and configuration, not what is built or stored."""
    inside = path.relative_to(ROOT)
    if HIDDEN.intersection(inside.parts) or any(part.endswith((".egg-info", ".json")) for part in inside.parts):
        return False
    if inside.as_posix() in FILES:
        return True
    in_code = any(inside.is_relative_to(folder) for folder in SHOWN)
    return in_code and path.exists() and (path.is_dir() or path.suffix in KINDS)


class LinksToFiles(SphinxTransform):
    """Turns links to files, which MyST would offer as downloads, and to folders, into links to their pages."""

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        """Replace the links of one document."""
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for node in list(self.document.findall(kind)):
                address = self.address(node.get("reftarget", ""))
                if address and (kind is addnodes.download_reference or node.get("reftype") == "myst"):
                    node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))

    def address(self, target: str) -> str | None:
        """Return the page of a file or folder, relative to this document, or that of the README of a folder."""
        path = (ROOT / self.env.docname).parent.joinpath(target.lstrip("/")).resolve()
        if not target or not path.is_relative_to(ROOT):
            return None
        readme = (path / "README").relative_to(ROOT).as_posix()
        page = readme if readme in self.env.found_docs else page_of(path) if shown(path) else None
        return page and self.app.builder.get_relative_uri(self.env.docname, page)


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the page and line of a definition, relative to a page of docs/reference."""
    try:
        found: Any = importlib.import_module(info["module"])
        for name in info["fullname"].split("."):
            found = getattr(found, name)
        found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "func", None) or found)
        path = Path(inspect.getsourcefile(found) or "").resolve()
        line = inspect.getsourcelines(found)[1]
    except (AttributeError, OSError, TypeError):
        return None  # a value, not a definition
    return f"../../{page_of(path)}.html#L-{line}" if path.is_relative_to(ROOT / "src") else None


def folder_body(folder: Path) -> str:
    """Return the list of a folder's files."""
    entries = sorted(filter(shown, folder.iterdir()), key=lambda path: (path.is_file(), path.name))
    names = (f"{escape(path.name)}{'/' * path.is_dir()}" for path in entries)
    return "".join(f'<p><a href="{folder.name}/{name.rstrip("/")}.html">{name}</a></p>' for name in names)


def file_body(path: Path) -> str:
    """Return a file with colours, and an anchor for each line."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(linespans="L", wrapcode=True)
    return highlight(path.read_text(encoding="utf-8"), lexer, formatter).replace("<pre>", '<pre tabindex="0">', 1)


def below(path: Path) -> Iterator[Path]:
    """Yield a file or folder and everything in it that is shown."""
    if shown(path):
        yield path
        if path.is_dir():
            for child in path.iterdir():
                yield from below(child)


def write_pages(app: Sphinx, failure: Exception | None) -> None:
    """Write a page for each file and folder of the code."""
    if failure is not None or app.builder.format != "html":
        return
    for path in (found for name in (*app.config.source_folders, *FILES) for found in below(ROOT / name)):
        to = Path(app.outdir, f"{page_of(path)}.html")
        if not to.exists() or path.is_dir() or to.stat().st_mtime < path.stat().st_mtime:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(page(path, app.config.root_doc), encoding="utf-8")


def page(path: Path, start: str) -> str:
    """Return the page of a file or folder, with links to the folders above it."""
    above = [folder for folder in path.relative_to(ROOT).parents if folder.name and shown(ROOT / folder)]
    depth = len(path.relative_to(ROOT).parts)
    steps = len(path.relative_to(ROOT).parent.parts)
    links = "".join(
        f' / <a href="{"../" * (steps - len(folder.parts) + 1)}{folder.name}.html">{folder.name}</a>'
        for folder in reversed(above)
    )
    body = folder_body(path) if path.is_dir() else file_body(path)
    name = path.relative_to(ROOT).as_posix()
    return PAGE.format(name=name, root="../" * depth, start=start, above=links, body=body)


def setup(app: Sphinx) -> None:
    """Register the transform and the writing of pages."""
    app.add_config_value("source_folders", list(SHOWN), "html")
    app.add_transform(LinksToFiles)
    app.connect("build-finished", write_pages)
