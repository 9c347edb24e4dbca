"""Whether context flows across lines, where nobody chose it: as the documents of the text suggest."""

from __future__ import annotations

from pathlib import Path

import pytest

import chainrule as cr


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("speeches.txt", "ROMEO:\nIs the day so young?\n\nBENVOLIO:\nBut new struck nine.\n\n", "stream"),
        ("sentences.txt", "a sentence\n" * 200, "line"),
        ("log.txt", "a line of a log\n" * 200 + "\n", "line"),
        ("tweets.jsonl", '{"text": "short"}\n' * 9, "line"),
        ("pages.jsonl", '{"text": "a title\\na paragraph\\nanother"}\n' * 9, "stream"),
        ("code.py", "def f(x):\n    y = x\n    return y\n\n\n" * 9, "stream"),
    ],
)
def test_context_flows_where_documents_have_several_lines(
    name: str, text: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    corpus = cr.Corpus.open(tmp_path / name)
    assert cr.train("ngram", corpus, order=2, tokenizer="char").context == expected
    assert cr.train("ngram", corpus, order=2, tokenizer="char", context="line").context == "line"


def test_lines_that_are_dealt_to_different_parts_have_no_context(tmp_path: Path) -> None:
    text = "".join(f"line {number}\nanother {number}\n\n" for number in range(30))
    options = {"ladder": "lecture-ngrams", "tokenizer": cr.TokenizerChoice("char")}
    assert cr.compare(text, tmp_path / "paragraphs", **options).context == "stream"
    assert cr.compare(text, tmp_path / "lines", split="line", **options).context == "line"
