"""Scripts in every field that a page shows, opened in a browser: reports, and the views of the server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from benchmarks.serve.load import server

import chainrule as cr

from .browser import PATIENCE, launched
from .frame import Trial

REPORT, VIEWS = "report in a browser", "views of the server in a browser"
_TEXTS = "document.body.innerText + Array.from(document.querySelectorAll('textarea'), one => one.value).join()"
_FOUND = "window.hit !== undefined || document.querySelector('[onerror], [onload], [src=x]') !== null"
"""Whether a script of a text ran, or became an element of the page."""


def show(trial: Trial, scripts: Sequence[str]) -> None:
    """Show pages with a script in each of their fields."""
    with launched() as browser, tempfile.TemporaryDirectory(prefix="trial-") as folder:
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE)
        page.on("dialog", lambda dialog: dialog.dismiss())
        if trial.chosen([REPORT]):
            for path in _reports(Path(folder), scripts):
                page.goto(path.resolve().as_uri())
                page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
                page.wait_for_timeout(200)  # what has an error of loading tells so a moment later
                shown = None if "window.hit" in page.evaluate(_TEXTS) else "the text is not shown"
                trial.note(REPORT, "a text ran" if page.evaluate(_FOUND) else shown)
        if trial.chosen([VIEWS]) and not trial.small:
            _views(trial, page, Path(folder), scripts)


def _reports(folder: Path, scripts: Sequence[str]) -> Iterator[Path]:
    """Reports of one comparison, each with one of the scripts in every text that its files have."""
    lines = [f"{number} i love {script} cats" for number in range(40) for script in scripts]
    made = folder / "comparison"
    cr.compare(lines, made, kinds=["anygram"], tokenizer=cr.TokenizerChoice("word"))
    values = json.loads((made / "compare.json").read_text(encoding="utf-8"))
    for script in scripts:
        changed = _replaced(
            values, script, lambda key: key in ("name", "sample", "title", "corpus", "reason", "note")
        )
        (made / "compare.json").write_text(json.dumps(changed), encoding="utf-8")
        yield cr.report.write_report(made, prompts=[script], pictures=False)


def _replaced(value: Any, script: str, is_shown: Callable[[str], bool], key: str = "") -> Any:
    """A value in which a script was added to each text that is shown."""
    if isinstance(value, dict):
        return {name: _replaced(one, script, is_shown, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, script, is_shown, key) for one in value]
    return f"{value} {script}" if isinstance(value, str) and is_shown(key) else value


def _views(trial: Trial, page: Any, folder: Path, scripts: Sequence[str]) -> None:
    """Every view that takes a text, of a model whose words and name are scripts."""
    lm = cr.train("ngram", [f"i love {script} cats" for script in scripts] * 20, order=2, tokenizer="word")
    lm.save(folder / "model")
    for script in scripts:
        name = f"m {script}".replace("=", "").replace("/", "")
        with server(f"{name}={folder / 'model'}") as (port, _):
            for view, asked in {
                "write": {"prompt": script, "n": 12, "seed": 1, "go": 1},
                "read": {"text": script},
                "tree": {"prompt": script, "width": 3, "n": 5, "step": 5},
                "tokens": {"text": script},
                "inside": {"text": script},
            }.items():
                page.goto("about:blank")
                page.goto(
                    f"http://127.0.0.1:{port}/#/{view}?{urlencode({'model': name, **asked}, quote_via=quote)}"
                )
                page.wait_for_selector(f"main[data-shown={view}]")
                page.wait_for_timeout(300)
                shown = None if "window.hit" in page.evaluate(_TEXTS) else f"the text is not shown in {view}"
                trial.note(VIEWS, f"a text ran in {view}" if page.evaluate(_FOUND) else shown)
