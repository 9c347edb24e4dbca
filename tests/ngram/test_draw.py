"""A word drawn without looking at all of them is drawn from the same distribution."""

from __future__ import annotations

import numpy as np
import pytest

import chainrule as cr
from chainrule.lm import draw
from chainrule.ngram import model
from chainrule.testing import LAWS

TOY = "i love cats\ni love dogs\ncats chase mice\n"


@pytest.fixture(autouse=True)
def by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MANY_WORDS", 1)


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "witten-bell", "mle"])
@pytest.mark.parametrize(
    "law",
    [
        "samples_follow_the_distribution",
        "same_seed_same_text_whatever_the_batch",
        "drawing_follows_the_distribution",
    ],
)
def test_the_laws_of_sampling_hold(smoothing: str, law: str) -> None:
    LAWS[law](cr.train("ngram", cr.Corpus.from_text(TOY), order=3, smoothing=smoothing))


def test_words_come_as_often_as_they_should_and_forbidden_ones_never() -> None:
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), order=3)
    state = lm.extend(lm.start(1), lm.tokenizer.encode("i love")[None])
    many = state.select(np.zeros(20_000, dtype=np.int64))
    forbid = (lm.tokenizer.unk, lm.tokenizer.encode("mice")[0])
    ids, log_probs = lm.draw(many, np.random.default_rng(0).random(20_000), forbid)
    p = np.exp(lm.next_log_probs(state)[0])
    np.testing.assert_allclose(log_probs, np.log(p[ids]), rtol=1e-5)
    p[list(forbid)] = 0
    share = np.bincount(ids, minlength=len(p)) / len(ids)
    np.testing.assert_allclose(share, p / p.sum(), atol=5 * np.sqrt(0.25 / len(ids)))
    assert share[list(forbid)].max() == 0


def test_scores_are_drawn_from_as_every_model_is() -> None:
    """Stupid backoff's do not sum to one: the kernel would never leave the longest context."""
    lm = cr.train("ngram", cr.Corpus.from_text(TOY), smoothing="stupid-backoff")
    assert lm.draw(lm.start(1), np.zeros(1), ()) is None
    ids, _ = draw(lm, lm.start(1), np.zeros(1))
    assert lm.next_log_probs(lm.start(1))[0, ids[0]] > -np.inf
