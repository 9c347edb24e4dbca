"""A text word by word: words cover the text, means add up, and the best spans are found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.comparison.surprisals import Surprisals
from chainrule.report.surprise import (
    KINDS,
    LONGEST_SPAN,
    best_spans,
    by_kind,
    by_position,
    by_rank,
    by_training_count,
    words_of,
)

LN2 = math.log(2)


@given(st.text(st.sampled_from("ab\n \t漢字é—ｗ"), max_size=60))
def test_words_are_the_whole_text(text: str) -> None:
    words = words_of(text)
    assert "".join(words.words) == text
    assert [text.encode()[a:b].decode() for a, b in zip(words.edges, words.edges[1:], strict=False)] == words.words
    assert all("\n" not in word or word == "\n" for word in words.words)


def test_words_of_several_scripts() -> None:
    assert words_of("to be,  or\n漢字 is" + "x" * 30).words == [
        "to",
        " be,",
        "  or",
        "\n",
        "漢",
        "字",
        " is" + "x" * 22,
        "x" * 8,
    ]


def test_models_with_other_tokens_agree_on_words() -> None:
    """Four bits for "ab cd": as one token, as two, and as five."""
    words = words_of("ab cd\n")
    for ends, bits in (([5, 6], [5, 1]), ([2, 5, 6], [2, 3, 1]), ([1, 2, 3, 4, 5, 6], [1] * 6)):
        found = words.bits(Surprisals(np.asarray(bits, np.float32) * np.float32(LN2), np.asarray(ends)))
        assert found.tolist() == pytest.approx([2, 3, 1])


def test_loss_by_position_weighs_every_byte_once() -> None:
    """64 lines of 100 bytes, a token each: the class 8-15 has the bytes 8 to 15 of every line."""
    block = ("x" * 99 + "\n").encode() * 64
    nats = np.random.default_rng(0).random(len(block)).astype(np.float32)
    surprisals = Surprisals(nats, np.arange(1, len(block) + 1))
    of_lines = by_position(block, {"m": surprisals}, lines=True)
    assert of_lines.labels == ["0-3", "4-7", "8-15", "16-31", "32-63", "64-99"]
    assert of_lines.means["m"][2] == pytest.approx(float(nats.reshape(64, 100)[:, 8:16].mean()) / LN2, rel=1e-5)
    of_text = by_position(block, {"m": surprisals}, lines=False)
    assert of_text.labels[:2] == ["0-255", "256-511"]
    for bins in (of_lines, of_text):
        assert sum(bins.amounts) == len(block)
        total = np.dot(bins.means["m"], bins.amounts)
        assert total == pytest.approx(float(nats.sum()) / LN2, rel=1e-5)


def test_classes_of_few_bytes_are_left_out() -> None:
    block = b"ab\n" * 30 + b"x" * 30 + b"\n"
    surprisals = Surprisals(np.ones(len(block), np.float32), np.arange(1, len(block) + 1))
    assert by_position(block, {"m": surprisals}, lines=True).labels == ["0-3"]


def test_loss_by_training_count() -> None:
    """Of 100 training tokens "a" was 50 and "b" 1; "c" is new. Line ends do not count."""
    block = b"a b c\n"
    ends = np.asarray([1, 3, 5, 6])
    unigram = Surprisals(np.asarray([-math.log(0.5), -math.log(0.01), math.inf, 1], np.float32), ends)
    model = Surprisals(np.asarray([1, 2, 3, 4], np.float32) * np.float32(LN2), ends)
    bins = by_training_count(unigram, 100, block, {"m": model})
    assert (bins.labels, bins.amounts) == (["0", "1", "10-99"], [1, 1, 1])
    assert bins.means["m"] == pytest.approx([3, 2, 1])


def test_loss_by_rank() -> None:
    words = words_of("the the cat\n")
    model = Surprisals(np.asarray([1, 2, 9, 5], np.float32) * np.float32(LN2), np.asarray([3, 7, 11, 12]))
    bins = by_rank(words, {"m": model})
    assert (bins.labels, bins.amounts) == (["1-10"], [3])
    assert bins.means["m"] == pytest.approx([4])


def test_loss_by_kind_of_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two documents; the surprisal of each word is its number, so a mean is the mean of the numbers."""
    monkeypatch.setattr("chainrule.report.surprise._FEWEST_WORDS", 1)
    monkeypatch.setattr("chainrule.report.surprise.FREQUENT", 2)
    monkeypatch.setattr("chainrule.report.surprise.BEGINNING", 4)
    text = "The king saw Rome. But\nthe king and I'll go to Rome in 44\n\nThe Rome road\n"
    #        0   1    2   3     4  5 6   7    8   9    10 11 12   13 14 15 16 17  18   19  20
    words = words_of(text)
    model = Surprisals(np.arange(21, dtype=np.float32) * np.float32(LN2), words.edges[1:])
    bins = by_kind(words, {"m": model}, np.asarray([len(text)]))
    found = dict(zip(bins.labels, zip(bins.amounts, bins.means["m"], strict=True), strict=True))
    places = {
        "frequent": [0, 3, 6, 12, 17, 18],  # "the" and "Rome", three times each; "king" is there twice
        "rare": [2, 4, 8, 9, 10, 11, 13, 14, 19],
        "numbers": [14],
        "names": [3, 12, 18],  # "But" begins a sentence, and "I'll" is no name
        "line starts": [0, 6, 17],
        "repeated": [7],
        "document starts": [0, 1, 2, 3, 17, 18, 19],
        "later": [4, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    }
    assert list(places) == list(KINDS)
    assert found == {kind: (len(at), pytest.approx(sum(at) / len(at))) for kind, at in places.items()}


def test_kinds_of_words_have_intervals_over_documents() -> None:
    """A model that is worse by a bit at every word is told apart; one that is worse at one word in 40 is not."""
    text = "".join(f"word{number % 7} and number {number}\n\n" for number in range(40))
    words, random = words_of(text), np.random.default_rng(0)
    best = random.uniform(1, 20, len(words.words))
    sometimes = best + 0.4 * (np.arange(len(best)) == 3)
    losses = {"best": best, "worse": best + 1, "sometimes": sometimes}
    models = {name: Surprisals((bits * LN2).astype(np.float32), words.edges[1:]) for name, bits in losses.items()}
    sizes = np.asarray([len(one) + 2 for one in text.split("\n\n")[:-1]])
    bins = by_kind(words, models, sizes)
    assert "numbers" in bins.labels and bins.equal == [["sometimes"]] * len(bins.labels)
    for name in models:
        for mean, interval in zip(bins.means[name], bins.intervals[name], strict=True):
            assert interval is not None and interval[0] < mean < interval[1]
    width = {name: np.diff(bins.intervals[name][0] or ())[0] for name in models}
    few = by_kind(words, models, np.asarray([len(text) // 4] * 4))
    assert few.equal == [[]] * len(few.labels) and set(few.intervals["worse"]) == {None}
    assert width["worse"] == pytest.approx(width["best"])  # they share the draws


def spans_slowly(gains: list[int], line: list[int], count: int) -> list[tuple[int, int]]:
    """Try every span; take the best, then the best that does not overlap it, and so on."""
    every = [
        (-sum(gains[a:b]), a, b)
        for a in range(len(gains))
        for b in range(a + 1, min(a + LONGEST_SPAN, len(gains)) + 1)
        if line[a] == line[b - 1] and sum(gains[a:b]) > 0
    ]
    found: list[tuple[int, int]] = []
    for _, a, b in sorted(every):
        if len(found) < count and all(b <= c or a >= d for c, d in found):
            found.append((a, b))
    return found


@given(
    gains=st.lists(st.integers(-5, 5), max_size=30),
    breaks=st.lists(st.booleans(), min_size=30, max_size=30),
    count=st.integers(1, 4),
)
def test_the_best_spans_are_those_that_trying_all_finds(gains: list[int], breaks: list[bool], count: int) -> None:
    line = np.cumsum(breaks[: len(gains)]).astype(np.int64)
    better = np.zeros(len(gains))
    found = best_spans(better, better + np.asarray(gains, dtype=np.float64), line, count)
    assert [(span.first, span.last) for span in found] == spans_slowly(gains, line.tolist(), count)
    assert all(span.bits_of_other - span.bits == sum(gains[span.first : span.last]) for span in found)
