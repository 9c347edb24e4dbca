"""Anomalies: ranked as by scoring each alone, tokens in their places, logs that grow, and metrics by definition."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.errors import CorpusError, SettingsError
from chainrule.evaluation.records import ScoredRecord, score_records
from chainrule.tasks.anomaly import (
    Ranking,
    anomalies,
    auroc,
    average_precision,
    detect,
    follow,
    scored_batches,
    surprising_tokens,
)
from chainrule.text.corpus import Corpus
from chainrule.text.files import Cleaning

LOG = ["open door", "close door", "open window", "", "open fire", "zebra", "close window\tslowly", "open door"]


def trained(tokenizer: str = "word", context: str = "line") -> cr.LanguageModel:
    text = "open door\nclose door\nopen window\nclose the café 漢字 slowly\n" * 3
    return cr.train("ngram", Corpus.from_text(text), order=3, tokenizer=tokenizer, context=context)


MODELS = {tokenizer: trained(tokenizer) for tokenizer in ("word", "char", "byte", "bpe", "wordpiece", "unigram")}


@pytest.mark.parametrize("by", ["mean", "total"])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_lines_are_ranked_by_their_surprisal_alone(tmp_path: Path, by: str, context: str) -> None:
    lm, log = trained(context=context), tmp_path / "a.log"
    log.write_text("".join(f"{line}\n" for line in LOG))

    def bits(line: str) -> float:
        found = -lm.log_prob(line) / math.log(2)
        return found if by == "total" else found / len(lm.surprisals(line))

    numbered = [(number, line) for number, line in enumerate(LOG, start=1) if line]
    expected = sorted(numbered, key=lambda entry: (-bits(entry[1]), entry[0]))
    for top in (1, 3, 7, 20):
        found = anomalies(lm, log, top, by=by)  # type: ignore[arg-type]
        assert [(odd.id, odd.text) for odd in found] == expected[:top]
        for odd in found:
            assert odd.bits == pytest.approx(bits(odd.text))
            total = sum(token.bits for token in odd.tokens)
            assert total == pytest.approx(odd.bits * (1 if by == "total" else len(odd.tokens)))
    limit = bits("open fire")
    above = anomalies(lm, log, None, threshold=limit - 1e-9, by=by)  # type: ignore[arg-type]
    assert [odd.text for odd in above] == [line for _, line in expected if bits(line) >= limit - 1e-9]


@pytest.mark.parametrize("tokenizer", MODELS)
@given(st.text("opendor 漢é\t.", max_size=20))
def test_tokens_have_their_places_in_the_line(tokenizer: str, line: str) -> None:
    """One after the other, over all that is not white space, each where its spelling is."""
    lm = MODELS[tokenizer]
    ids = (*lm.tokenizer.encode(line).tolist(), lm.tokenizer.eos)
    tokens = [*surprising_tokens(lm.tokenizer, ScoredRecord(line, ids, (0.0,) * len(ids), 1))]
    *spans, end = [(token.start, token.end) for token in tokens]
    assert len(tokens) == len(ids) and end == (len(line), len(line))
    assert all(0 <= start <= end <= len(line) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    covered = {place for start, end in spans for place in range(start, end)}
    assert {place for place, character in enumerate(line) if not character.isspace()} <= covered
    if tokenizer == "char":
        assert spans == [(place, place + 1) for place in range(len(line))]
    if tokenizer == "word":
        assert [line[start:end] for start, end in spans] == line.split()


def test_tokens_of_a_record_of_several_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "open fire\nclose door"}))
    (odd,) = anomalies(MODELS["word"], tmp_path / "a.jsonl")
    assert [(token.text, token.start, token.end) for token in odd.tokens] == [
        ("open", 0, 4),
        ("fire", 5, 9),
        ("", 9, 10),
        ("close", 10, 15),
        ("door", 16, 20),
        ("", 20, 20),
    ]


def followed(path: Path, *steps: Callable[[], object]) -> list[tuple[int, str]]:
    """The lines that `follow` gives, where a step is taken each time that it waits."""
    ahead = iter(steps)

    def wait() -> bool:
        step = next(ahead, None)
        if step is not None:
            step()
        return step is not None

    return [
        (int(batch.labels[index]), batch.text(index))
        for batch in follow(path, wait=wait)
        for index in range(len(batch))
    ]


def test_a_log_is_followed_as_it_grows(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\nthr")

    def add(text: str) -> Callable[[], object]:
        def write() -> None:
            with log.open("a") as file:
                file.write(text)

        return write

    grown = [(1, "one"), (2, "two"), (3, "three"), (4, "four"), (5, "five")]
    assert followed(log, add("ee\n"), lambda: None, add("four\r\nfi"), add("ve")) == grown


def test_a_log_that_is_rotated_is_read_to_its_end_and_then_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\n")
    kept = log.open("a")

    def rotate() -> None:
        log.rename(tmp_path / "a.log.1")

    def late() -> None:
        kept.write("two, to the old file\n")
        kept.close()

    found = followed(log, rotate, late, lambda: log.write_text("three\n"), lambda: None)
    assert found == [(1, "one"), (2, "two, to the old file"), (1, "three")]
    log.write_text("a longer line than after\n")
    assert followed(log, lambda: log.write_text("short\n"), lambda: None) == [
        (1, "a longer line than after"),
        (1, "short"),
    ]


def test_bytes_that_are_not_utf8_do_not_end_a_followed_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\nt\xffo\nthree\n")

    def add() -> None:
        with log.open("ab") as file:
            file.write(b"fo\xfer\nfive\n")

    assert [text for _, text in followed(log, add, lambda: None)] == [
        "one",
        "t\ufffdo",
        "three",
        "fo\ufffdr",
        "five",
    ]


def test_following_gives_the_scores_of_a_complete_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"{line}\n" for line in LOG))
    lm = MODELS["word"]
    ranking = Ranking(lm, 3)
    for batch in scored_batches(lm, follow(log, wait=lambda: False), ahead=False):
        ranking.add(batch)
    assert ranking.ranked() == anomalies(lm, log, 3)
    bits = {record.id: record.bits_per_token for record in score_records(lm, log)}
    assert all(odd.bits == pytest.approx(bits[odd.id]) for odd in ranking.ranked())


scores_and_labels = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@given(scores_and_labels)
def test_metrics_are_those_of_the_definitions(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.asarray([float(s) for s, _ in rows]), np.asarray([label for _, label in rows])
    pairs = [(a, b) for a, x in rows if x for b, y in rows if not y]
    assert auroc(scores, labels) == pytest.approx(sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs))
    precision, last = 0.0, 0
    for limit in sorted(set(scores.tolist()), reverse=True):
        chosen = [label for score, label in rows if score >= limit]
        precision += (sum(chosen) - last) / labels.sum() * sum(chosen) / len(chosen)
        last = sum(chosen)
    assert average_precision(scores, labels) == pytest.approx(precision)


def test_labelled_records_are_measured(tmp_path: Path) -> None:
    rows = [{"text": line, "odd": "fire" in line or line == "zebra"} for line in LOG]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = detect(MODELS["word"], Corpus.open(tmp_path / "a.jsonl"), "odd")
    assert (found.records, found.anomalies, found.baseline) == (7, 2, 2 / 7)
    assert 0.5 < found.auroc <= 1 and found.baseline < found.average_precision <= 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"text": "a", "odd": True}, {"text": "b", "odd": 3}],
            'record 2: the label "odd" should be true or false',
        ),
        ([{"text": "a", "odd": True}, {"text": "b", "odd": None}], "found nothing"),
        ([{"text": "a", "odd": True}], "all records are anomalies"),
        ([{"text": "a", "odd": 0}], "all records are normal"),
        ([{"text": "a"}], 'there is no field "odd"'),
    ],
)
def test_labels_that_say_nothing_are_refused(tmp_path: Path, rows: list[dict[str, object]], message: str) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(CorpusError, match=message):
        detect(MODELS["word"], Corpus.open(tmp_path / "a.jsonl"), "odd")


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="text has no labels"):
        detect(MODELS["word"], Corpus.from_text("open door"), "odd")
    with pytest.raises(SettingsError, match="at least 1, not 0"):
        anomalies(MODELS["word"], "open door", 0)
    (tmp_path / "a.log").write_bytes(b"open\nfi\xffre\n")
    strict, read = follow(tmp_path / "a.log", wait=lambda: False, cleaning=Cleaning("strict")), []
    with pytest.raises(CorpusError, match="line 2, byte 3: expected UTF-8, found ff"):
        read.extend(batch.text(0) for batch in strict)
    assert read == ["open"]
