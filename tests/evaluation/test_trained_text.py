"""Tests of the share of a text that a model was trained on."""

from pathlib import Path

import pytest

import chainrule as cr
from chainrule.text.overlap import SKETCH, LineSketch, shared, sketches_in

LINES = [f"line {number} is a sentence that is long enough to count" for number in range(40)]
OTHERS = [line.replace("sentence", "question") for line in LINES]


@pytest.fixture(scope="module")
def lm() -> cr.LanguageModel:
    return cr.train("ngram", LINES, order=2, tokenizer="word")


def test_a_model_knows_which_share_of_a_text_it_was_trained_on(lm: cr.LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "model")
    for one in (lm, cr.load(tmp_path / "model")):
        assert cr.evaluate(one, LINES).trained_on == 1
        assert cr.evaluate(one, OTHERS).trained_on == 0
        half = cr.evaluate(one, LINES[:10] + OTHERS[:10])
        assert half.trained_on == 0.5
        assert "about 50% of the text's long lines were in the training text" in str(half)
        assert cr.evaluate(one, ["short lines", "say nothing"]).trained_on is None


def test_a_mixture_was_trained_on_the_texts_of_its_parts(lm: cr.LanguageModel) -> None:
    mixed = cr.mix([lm, cr.train("ngram", OTHERS, order=1, tokenizer=lm.tokenizer)], ["line 1 is short"])
    assert cr.evaluate(mixed, LINES + OTHERS).trained_on == 1


def test_a_sample_that_cannot_be_read_says_nothing() -> None:
    for wrong in ("no base64 at all", "AAAAA", 7):
        assert sketches_in({SKETCH: wrong, "mixed": "x"}) == []


def test_samples_of_long_texts_estimate_the_share() -> None:
    one, other = LineSketch(), LineSketch()
    for first in range(0, 20_000, 1000):  # block by block
        one.update(b"\n".join(b"this is line number %d of a long text" % n for n in range(first, first + 1000)))
    other.update(b"\n".join(b"this is line number %d of a long text" % n for n in range(17_000, 21_000)))
    assert shared(other.hashes, [one.hashes]) == pytest.approx(0.75, abs=0.08)
    assert shared(one.hashes, [other.hashes]) == pytest.approx(0.15, abs=0.03)
    assert shared(one.hashes, []) is None
