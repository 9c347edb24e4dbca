"""Texts that are made to harm: the stated result or our own error, in little memory, and no page runs them."""

from __future__ import annotations

import html.parser
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainrule as cr
from chainrule.errors import ChainruleError, EncodingError

from .browser import missing
from .frame import Trial
from .limited import run_limited
from .shown import REPORT, VIEWS, show

INVALID = {
    "a lone continuation byte": b"\x80",
    "a cut character of two bytes": b"\xc3",
    "a cut character of three bytes": b"\xe2\x82",
    "a cut character of four bytes": b"\xf0\x9f\x99",
    "an overlong slash": b"\xc0\xaf",
    "an overlong NUL": b"\xc0\x80",
    "an overlong character of three bytes": b"\xe0\x80\xaf",
    "a high surrogate": b"\xed\xa0\x80",
    "a low surrogate": b"\xed\xbf\xbf",
    "a pair of surrogates": b"\xed\xa0\xbd\xed\xb8\x80",
    "beyond the last character": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "FE": b"\xfe",
    "FF": b"\xff",
    "UTF-16": "\ufeffi love cats\n".encode("utf-16"),
    "Latin-1": "naïve café".encode("latin-1"),
}
"""Bytes that are not UTF-8, of every class."""
MARKS = {
    "a byte order mark": "\ufeff",
    "a byte order mark inside": "i \ufefflove",
    "CRLF": "i love\r\ncats\r\n",
    "CR": "i love\rcats\r",
    "NUL": "i\0love",
    "only NULs": "\0" * 1000,
    "form feeds": "i\flove\v",
    "line separators": "i\u2028love\u2029\x85",
    "right to left": "\u202ecats\u202d",
    "zero width": "c\u200ba\u200dt",
    "combining marks": "a" + "\u0301" * 3000,
    "last character": "\U0010ffff",
    "non-characters": "\ufffe\uffff",
    "private use": "\ue000",
    "tags": "\U000e0041",
    "escape codes": "\x1b[31m\x1b]0;title\x07\x1b[2J",
    "empty lines": "\n" * 5000,
    "spaces": " " * 5000,
    "no line end": "i love cats",
    "a path": "../../etc/passwd",
    "a format": "%s%n{}{0}$(id)`id`",
    "JSON": '{"text": "x"}',
    "CSV": '"a,""b\n',
    "ARPA": "\\data\\\nngram 1=1\n\\1-grams:\n-1 <s>\n\\end\\",
    "numbers": "1e999 -inf nan 99999999999999999999",
    "emoji": "\N{FAMILY}\ufe0f\u200d" * 300,
    "Chinese": "漢字" * 5000,
    "Thai": "ภาษาไทย" * 500,
}
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "[MASK]", "[CLS]", "▁", "Ġ", "##a"]
SCRIPTS = [
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "<!--<script>window.hit=1//-->",
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit=1')()}}",
]
LONG = 50_000_000
MOST_BYTES = 2 << 30
"""The memory that one file may take."""

TOKENIZERS = ("word", "word:unicode", "char", "byte", "bpe")


def files() -> dict[str, bytes]:
    """The texts by name, without the long line."""
    valid = {**MARKS, **{f"special: {one}": f"i love {one} cats {one}" for one in SPECIAL}}
    valid |= {f"script {number}": one for number, one in enumerate(SCRIPTS)}
    return {
        **{name: f"i love cats\n{text}\ni love dogs\n".encode() for name, text in valid.items()},
        **{f"invalid: {name}": b"i love cats\nx" + some + b"y\ni love dogs\n" for name, some in INVALID.items()},
    }


def run(trial: Trial) -> None:
    """Read every text with every tokenizer, train on it, write it back, and show it on a page."""
    texts = files()
    names = trial.chosen(list(texts))
    tries = [(name, tokenizer) for name in names for tokenizer in TOKENIZERS]
    pages = [name for name in names if name.startswith(("script", "special", "escape"))]

    def prepare(worker: int) -> Callable[[int], tuple[str, str | None]]:
        def attempt(number: int) -> tuple[str, str | None]:
            name, tokenizer = tries[number * 7919 % len(tries)]
            return name.partition(":")[0].partition(" ")[0], _tried(name, texts[name], tokenizer)

        return attempt

    count, trial.count = trial.count, min(trial.count, len(tries))
    if tries:
        run_limited(trial, prepare)
    trial.count = count
    for name in pages[: 2 if trial.small else None]:
        if not trial.is_over:
            trial.note("pages", _shown(texts[name].decode()))
    if trial.chosen([REPORT, VIEWS]) and (trial.only or not trial.small):
        if reason := missing():
            trial.left_out["browser"] = reason
        else:
            show(trial, SCRIPTS)
    if not trial.small and not trial.only:
        trial.note("a line of 50 MB", _long_line())


def _tried(name: str, content: bytes, tokenizer: str) -> str | None:
    """What is wrong with how a text is read, None if nothing is."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        path = Path(folder) / "text.txt"
        path.write_bytes(content)
        try:
            blocks = b"".join(cr.Corpus.open(path).blocks())
        except EncodingError as error:
            told = "line 2, byte" in str(error) or name == "invalid: UTF-16"
            if not name.startswith("invalid") or not told:
                return f"{name}: {error}"
            blocks = b"".join(cr.Corpus.open(path, encoding_errors="replace").blocks())
            return None if "\ufffd" in blocks.decode() else f"{name}: nothing was replaced"
        except ChainruleError as error:
            return f"{name}: {error}"
        if name.startswith("invalid"):
            return f"{name}: it was taken for UTF-8"
        made = cr.train_tokenizer(tokenizer, cr.Corpus.open(path))
        ids = made.encode_lines(blocks)
        if tokenizer in ("byte", "bpe", "char") and made.decode(ids.tolist()) != blocks.decode():
            return f"{name}: {tokenizer} does not give the text back"
        if {made.bos} & set(ids.tolist()) or int((ids == made.eos).sum()) != blocks.count(b"\n"):
            return f"{name}: a text became a special token"
        lm = cr.train("ngram", path, order=2, smoothing="witten-bell", tokenizer=made)
        value = lm.perplexity(content.decode())
        return None if 0 < value < float("inf") else f"{name}: a perplexity of {value}"


class _Runs(html.parser.HTMLParser):
    """Finds elements that would run something of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name.startswith("on") or ("hit=1" in (value or "") and name in ("src", "href", "srcdoc")):
                self.found.append(f"<{tag} {name}={value}>")
        self._tag = tag

    def handle_data(self, data: str) -> None:
        if getattr(self, "_tag", "") == "script" and data.strip() == "window.hit=1":
            self.found.append(f"<script>{data}</script>")


def _shown(text: str) -> str | None:
    """Whether the page of a comparison would run a text of its corpus, its samples or its names."""
    from chainrule.report.write import make_report

    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        lines = [line for line in text.splitlines() if line] * 30
        cr.compare(lines, Path(folder) / "c", kinds=["anygram"], tokenizer=cr.TokenizerChoice("word"))
        page: Any = _Runs()
        page.feed(make_report(Path(folder) / "c").html)
    return "; ".join(page.found) or None


def _long_line() -> str | None:
    """A model of words and subwords of one line of 50 MB, in a process whose memory is counted."""
    import os

    child = os.fork()
    if child == 0:
        code = 1
        try:
            line = b"many words of one line " * (LONG // 23)
            with tempfile.TemporaryDirectory(prefix="trial-") as folder:
                path = Path(folder) / "long.txt"
                path.write_bytes(line)
                cr.train("ngram", path, order=2, smoothing="witten-bell", tokenizer="word")
            most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            code = 0 if most < MOST_BYTES else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {0: None, 2: "it took more than 2 GB"}.get(code, f"it ended with {code}")
