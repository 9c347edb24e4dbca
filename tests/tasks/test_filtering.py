"""Filtering: the same documents as by judging each with the slow reference, in every form of file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.contract import chain
from chainrule.errors import CorpusError, SettingsError
from chainrule.tasks.filtering import filter as filtering
from chainrule.tasks.filtering.filter import filter_corpus, filter_stream, filter_texts
from chainrule.text.corpus import Corpus

LINES = ["i love cats", "mice dogs love", "cats chase dogs", "zebras", "dogs love mice", "i love i love i"]


def trained(context: str = "line") -> cr.LanguageModel:
    toy = Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    return cr.train("ngram", toy, order=3, smoothing="laplace", context=context, tokenizer="word")


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    return trained()


def slow_perplexity(lm: cr.LanguageModel, text: str) -> float:
    """exp of the mean surprisal, token by token, of a text by itself."""
    rows = lm.sequences(text)
    scores = np.concatenate([chain.score(lm, row[None].astype(np.int64))[0] for row in rows])
    return math.exp(-scores.mean())


def fluent(lm: cr.LanguageModel, texts: list[str], count: int) -> list[str]:
    limit = sorted(slow_perplexity(lm, text) for text in texts)[count - 1]
    return [text for text in texts if slow_perplexity(lm, text) <= limit * (1 + 1e-6)]


def as_text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("size", [1, 20, 1 << 20])
def test_the_most_fluent_lines_are_kept_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str, size: int
) -> None:
    """In batches of any size."""
    monkeypatch.setattr(filtering, "_AT_ONCE", size)
    lm, text = trained(context), tmp_path / "a.txt"
    text.write_text(as_text(LINES))
    for count in range(1, len(LINES) + 1):
        found = filter_corpus(lm, text, tmp_path / "out.txt", keep=count / len(LINES))
        expected = fluent(lm, LINES, count)
        assert (tmp_path / "out.txt").read_text() == as_text(expected)
        assert (found.documents, found.kept, found.dropped) == (6, len(expected), 6 - len(expected))
        assert (found.bytes, found.kept_bytes) == (len(as_text(LINES)), len(as_text(expected)))
        assert found.max_perplexity == pytest.approx(max(slow_perplexity(lm, line) for line in expected))
        assert filter_texts(lm, LINES, keep=count / len(LINES)) == expected


def test_a_limit_keeps_what_is_not_above_it_in_one_pass(lm: cr.LanguageModel, tmp_path: Path) -> None:
    every = sorted(slow_perplexity(lm, line) for line in LINES)
    limit = (every[2] + every[3]) / 2
    out = io.BytesIO()
    (tmp_path / "a.txt").write_text(as_text(LINES))
    found = filter_corpus(lm, tmp_path / "a.txt", out, max_perplexity=limit)
    assert out.getvalue().decode() == as_text(fluent(lm, LINES, 3))
    assert found.max_perplexity == pytest.approx(limit)
    for share, value in found.quantiles.items():  # ⌈share · 6⌉ documents do not exceed it
        assert value == pytest.approx(every[math.ceil(share * 6) - 1], rel=1e-3)
    streamed = io.BytesIO()
    pieces = [as_text(LINES).encode()[:17], as_text(LINES).encode()[17:]]
    assert filter_stream(lm, pieces, streamed, max_perplexity=limit) == found
    assert streamed.getvalue() == out.getvalue()


def test_equally_perplexing_documents_share_their_fate(lm: cr.LanguageModel) -> None:
    assert (
        filter_texts(lm, ["zebras", "i love cats", "i love cats", "i love cats"], keep=0.25) == ["i love cats"] * 3
    )


def reference_with_blank_lines(lines: list[str], kept: set[str]) -> list[str]:
    """Blank lines stay where something of the paragraph before them does; at the start they stay."""
    out, stays = [], True
    after_blank = True
    for line in lines:
        if line.strip():
            stays = line in kept or (stays and not after_blank)
            out += [line] * (line in kept)
        else:
            out += [line] * stays
        after_blank = not line.strip()
    return out


@given(
    st.lists(st.sampled_from(["i love cats", "zebras", "", "  ", "\t"]), min_size=1, max_size=12),
    st.integers(1, 30),
)
def test_blank_lines_stay_between_what_stays(lines: list[str], size: int) -> None:
    lm = _LM
    assert slow_perplexity(lm, "i love cats") < 6 < slow_perplexity(lm, "zebras")
    before = filtering._AT_ONCE
    filtering._AT_ONCE = size
    try:
        out = io.BytesIO()
        text = [as_text(lines).encode()]
        if not any(line.strip() for line in lines):
            with pytest.raises(CorpusError, match="no document"):
                filter_stream(lm, text, out, max_perplexity=6)
            return
        filter_stream(lm, text, out, max_perplexity=6)
    finally:
        filtering._AT_ONCE = before
    assert out.getvalue().decode() == as_text(reference_with_blank_lines(lines, {"i love cats"}))


_LM = trained()


@pytest.mark.parametrize("context", ["line", "stream"])
def test_paragraphs_are_documents(tmp_path: Path, context: str) -> None:
    lm = trained(context)
    paragraphs = ["i love cats\ni love dogs", "zebras\nzebras zebras", "cats chase mice", "dogs\nlove"]
    text = tmp_path / "a.txt"
    text.write_text("\n\n\n".join(paragraphs) + "\n")
    found = filter_corpus(lm, text, tmp_path / "out.txt", keep=0.5, paragraphs=True)
    assert (tmp_path / "out.txt").read_text() == "\n\n\n".join(fluent(lm, paragraphs, 2)) + "\n\n\n"
    assert (found.documents, found.kept) == (4, 2)


RECORDS: list[dict[str, Any]] = [
    {"n": number, "text": text, "more": {"a": [1, 2.50, None]}}
    for number, text in enumerate([*LINES, "i love\ncats", None, ""])
]


def test_jsonl_records_are_kept_whole(lm: cr.LanguageModel, tmp_path: Path) -> None:
    text, out = tmp_path / "a.jsonl", tmp_path / "out.jsonl.gz"
    lines = [json.dumps(record) for record in RECORDS]
    text.write_text("\n\n".join(lines))  # blank lines are no records
    found = filter_corpus(lm, text, out, keep=3 / 7)
    expected = fluent(lm, [record["text"] for record in RECORDS if record["text"]], 3)
    kept = gzip.decompress(out.read_bytes()).decode().splitlines()
    assert kept == [line for line, record in zip(lines, RECORDS, strict=True) if record["text"] in expected]
    assert (found.documents, found.without_text) == (7, 2)


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_rows_are_kept_as_they_are(lm: cr.LanguageModel, tmp_path: Path, suffix: str, delimiter: str) -> None:
    text, out = tmp_path / f"a.{suffix}", tmp_path / f"out.{suffix}"
    with text.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerow(["n", "text"])
        writer.writerows([record["n"], record["text"]] for record in RECORDS)
    filter_corpus(lm, [text, text], out, keep=3 / 7)
    expected = fluent(lm, [record["text"] for record in RECORDS if record["text"]], 3)
    rows = list(csv.reader(io.StringIO(out.read_text(), newline=""), delimiter=delimiter))
    assert rows[0] == ["n", "text"]
    assert rows[1:] == [[str(r["n"]), r["text"]] for r in RECORDS if r["text"] in expected] * 2
    assert '"n"' in out.read_text()  # quoted as it was


def test_parquet_rows_are_kept_with_all_columns(lm: cr.LanguageModel, tmp_path: Path) -> None:
    text, out = tmp_path / "a.parquet", tmp_path / "out.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), text, row_group_size=2)
    filter_corpus(lm, [text, text], out, keep=3 / 7)
    expected = fluent(lm, [record["text"] for record in RECORDS if record["text"]], 3)
    assert pyarrow.parquet.read_table(out).to_pylist() == [r for r in RECORDS if r["text"] in expected] * 2


def test_networks_score_as_ngrams_do(tmp_path: Path) -> None:
    """A model without the fast path, by batches of rows."""
    toy = Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    lm = cr.train("feedforward", toy, steps=2, seed=1, engine="tape", tokenizer="word")
    text = tmp_path / "a.txt"
    text.write_text(as_text(LINES))
    filter_corpus(lm, text, tmp_path / "out.txt", keep=0.5)
    assert (tmp_path / "out.txt").read_text() == as_text(fluent(lm, LINES, 3))


def test_what_cannot_be_filtered_is_refused(lm: cr.LanguageModel, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("i love cats\n")
    (tmp_path / "b.jsonl").write_text('{"text": "i love cats"}\n')
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), tmp_path / "c.parquet")
    out = io.BytesIO()
    with pytest.raises(SettingsError, match="one of the two"):
        filter_corpus(lm, tmp_path / "a.txt", out)
    with pytest.raises(SettingsError, match="at most 1, not 2"):
        filter_corpus(lm, tmp_path / "a.txt", out, keep=2)
    with pytest.raises(SettingsError, match="at least 1, not nan"):
        filter_corpus(lm, tmp_path / "a.txt", out, max_perplexity=math.nan)
    with pytest.raises(CorpusError, match="jsonl and text files together"):
        filter_corpus(lm, [tmp_path / "a.txt", tmp_path / "b.jsonl"], out, keep=0.5)
    with pytest.raises(CorpusError, match="are text, but this is the name of a jsonl file"):
        filter_corpus(lm, tmp_path / "a.txt", tmp_path / "out.jsonl", keep=0.5)
    with pytest.raises(CorpusError, match="need a file of their own"):
        filter_corpus(lm, tmp_path / "c.parquet", out, keep=0.5)
    (tmp_path / "d.csv").write_text("text\ni love cats\n")
    (tmp_path / "e.csv").write_text("text,n\ni love cats,1\n")
    with pytest.raises(CorpusError, match=r"e\.csv: its first row is not that"):
        filter_corpus(lm, [tmp_path / "d.csv", tmp_path / "e.csv"], tmp_path / "out.csv", keep=0.5)
    assert not (tmp_path / "out.csv").exists()
