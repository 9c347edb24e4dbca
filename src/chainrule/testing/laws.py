"""The laws of the contract: what holds for every language model there is.

Each law is a function that takes a model with a small vocabulary and raises AssertionError if the model breaks it.
"""

from __future__ import annotations

from chainrule.contract.lm import LanguageModel
from chainrule.testing import contract_laws, fast_path_laws  # noqa: F401 (they enter their laws)
from chainrule.testing.register import LAWS, NOT_OFFERED, Law, prefixes

__all__ = ["LAWS", "LAWS_OF_PROBABILITIES", "NOT_OFFERED", "Law", "check_laws", "laws_for", "prefixes"]

LAWS_OF_PROBABILITIES = ("sums_to_one", "samples_follow_the_distribution")
"""Laws that do not hold for a model that is not `normalised`: it returns scores instead of probabilities."""

MOST_TOKENS = 400
"""Models with more tokens are not checked: it would take hours."""


def laws_for(lm: LanguageModel) -> list[str]:
    """Return the names of the laws that a model should keep: if it gives scores, without those of probabilities.

    >>> import chainrule as cr
    >>> laws_for(cr.train("ngram", ["a b"] * 3, order=2, tokenizer="word"))[0]
    'sums_to_one'
    """
    return [name for name in LAWS if lm.normalised or name not in LAWS_OF_PROBABILITIES]


def check_laws(lm: LanguageModel) -> list[str]:
    """Check every law that the model should keep; the error names the first that it breaks.

    Returns the laws of fast paths that the model does not offer, which compared nothing. Some laws try every text
    of two or three tokens, so the vocabulary should be small.

    >>> import chainrule as cr
    >>> not_offered = check_laws(cr.Table({"": {"a": 0.5, "</s>": 0.5}}))  # an error names a law that is broken
    """
    if lm.tokenizer.vocab_size > MOST_TOKENS:
        raise ValueError(
            f"the laws try every short text: check a model with at most {MOST_TOKENS} tokens, "
            f"not {lm.tokenizer.vocab_size:,} (train it on a few lines)"
        )
    return LAWS.check(lm, laws_for(lm))
