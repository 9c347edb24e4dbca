"""The laws of taggers: what holds for each of them.

Each law is a function that takes a tagger and raises AssertionError if the tagger breaks it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.tagging.contract import Tagger
from chainrule.testing.register import Laws

TAGGER_LAWS: Laws[Tagger] = Laws()
tagger_law = TAGGER_LAWS.enter
_CLOSE: Any = {"rtol": 1e-4, "atol": 1e-5}


def check_tagger_laws(tagger: Tagger) -> None:
    """Check every law; the error names the first that the tagger breaks.

    >>> sentences = [[("the", "DET"), ("cat", "NOUN")], [("a", "DET"), ("dog", "NOUN")]] * 4
    >>> check_tagger_laws(cr.train("tagger", sentences, width=8, layers=1, steps=1))
    """
    TAGGER_LAWS.check(tagger, TAGGER_LAWS)


def sentences_for(tagger: Tagger) -> list[list[str]]:
    """Sentences of several lengths: of known words, of unknown ones, of long and strange ones."""
    known = tagger.tokenizer.words[:5]
    strange = ["Zürich", "x" * 200, "-", "🙂", "_"]
    return [known, strange, known[:1], [*strange, *known] * 4, ["nevermore"], known[::-1]]


@tagger_law
def probabilities_sum_to_one(tagger: Tagger) -> None:
    """Σ over tags of p(tag | words) is 1, for each word."""
    for words, log_probs_TK in zip(*_tagged(tagger), strict=True):
        assert log_probs_TK.shape == (len(words), len(tagger.tags))
        np.testing.assert_allclose(np.exp(log_probs_TK).sum(axis=1), 1.0, **_CLOSE)


@tagger_law
def a_batch_is_its_sentences(tagger: Tagger) -> None:
    """A sentence has the same probabilities alone and among others, which pad it."""
    for words, together_TK in zip(*_tagged(tagger), strict=True):
        (alone_TK,) = tagger.log_probs([words])
        np.testing.assert_allclose(alone_TK, together_TK, **_CLOSE)


@tagger_law
def the_order_of_sentences_changes_nothing(tagger: Tagger) -> None:
    """Sentences come back in the order in which they were given."""
    sentences, found = _tagged(tagger)
    for before_TK, after_TK in zip(found, tagger.log_probs(sentences[::-1])[::-1], strict=True):
        np.testing.assert_allclose(before_TK, after_TK, **_CLOSE)


@tagger_law
def the_best_tag_is_given(tagger: Tagger) -> None:
    """`tag` gives the tag of the greatest probability, and that probability."""
    sentences, found = _tagged(tagger)
    for tagged, words, log_probs_TK in zip(tagger.tag(sentences), sentences, found, strict=True):
        assert tagged.words == tuple(words)
        assert list(tagged.tags) == [tagger.tags[i] for i in log_probs_TK.argmax(axis=1)]
        np.testing.assert_allclose(tagged.log_probs, log_probs_TK.max(axis=1), **_CLOSE)


@tagger_law
def nothing_has_no_tags(tagger: Tagger) -> None:
    """An empty list has an empty result, and a sentence without words has no tags."""
    assert tagger.log_probs([]) == []
    empty, one = tagger.log_probs([[], tagger.tokenizer.words[:1]])
    assert empty.shape == (0, len(tagger.tags)) and one.shape == (1, len(tagger.tags))


@tagger_law
def saving_is_exact(tagger: Tagger) -> None:
    """A tagger that is saved and loaded gives the same probabilities, bit for bit."""
    if tagger.dtype != "float32" or tagger.device != "cpu":
        return
    sentences, found = _tagged(tagger)
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(Path(folder) / "model")
        loaded: Any = cr.load(Path(folder) / "model")
        assert loaded.tags == tagger.tags
        for before_TK, after_TK in zip(found, loaded.log_probs(sentences), strict=True):
            assert np.array_equal(before_TK, after_TK)
        words = [word for some in sentences for word in some]
        assert loaded.frequent_tags(words) == tagger.frequent_tags(words)


def _tagged(tagger: Tagger) -> tuple[list[list[str]], list[np.ndarray]]:
    sentences = sentences_for(tagger)
    return sentences, tagger.log_probs(sentences)
