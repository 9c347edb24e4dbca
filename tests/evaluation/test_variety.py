"""How much texts repeat themselves and vary."""

from __future__ import annotations

import pytest

from chainrule.evaluation.variety import self_bleu, variety_of


def test_loops_repeat_and_plain_text_does_not() -> None:
    """A loop of two words repeats all but its first two 4-grams; text without repetition has all bigrams once."""
    loop = variety_of(["to be " * 10])
    assert (loop.words, loop.repeated_4grams, loop.distinct_2) == (
        20,
        pytest.approx(15 / 17),
        pytest.approx(2 / 19),
    )
    plain = variety_of(["one two three", "four five", ""])
    assert (plain.words, plain.repeated_4grams, plain.distinct_2) == (5, 0, 1)
    assert (loop.distinct_1, loop.loops) == (2 / 20, loop.repeated_4grams)


def test_what_another_text_has_said_is_repeated_but_no_loop() -> None:
    found = variety_of(["a b c d e", "a b c d e"])
    assert (found.repeated_4grams, found.loops) == (0.5, 0)


def test_self_bleu_takes_every_other_text_as_a_reference() -> None:
    """The third text is half of the first and half of the second: it is alike only with both as references."""
    texts = ["the cat sat on the mat", "a dog ran to the big house", "the cat sat on the big house"]
    assert self_bleu(texts[:1]) is None
    assert self_bleu(texts) > max(self_bleu(texts[:2]), self_bleu([texts[0], "a b c d e f g"]))
    assert self_bleu(texts) == pytest.approx(self_bleu(texts[::-1]))
