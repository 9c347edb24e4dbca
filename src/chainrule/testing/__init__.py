"""The laws of the contract, for the kinds of this package and for those of others.

A kind of another package tests itself with

    from chainrule.testing import check_laws
    check_laws(lm)

where `lm` is a model with a small vocabulary. `LAWS` names all laws. Taggers have laws of their own:
`check_tagger_laws(tagger)`, and so have classifiers: `check_classifier_laws(classifier)`. In reading order:

    register.py         the register of laws, and what they share
    contract_laws.py    laws of the contract: probabilities, states, batches, text, folders
    fast_path_laws.py   laws of fast paths: each is equal to its plain way
    laws.py             all of them: those that a model should keep, and their check
    naming_laws.py      the laws of taggers and of classifiers
"""

from __future__ import annotations

from chainrule.testing.laws import LAWS, LAWS_OF_PROBABILITIES, NOT_OFFERED, Law, check_laws, laws_for
from chainrule.testing.naming_laws import CLASSIFIER_LAWS, TAGGER_LAWS, check_classifier_laws, check_tagger_laws

__all__ = [
    "CLASSIFIER_LAWS",
    "LAWS",
    "LAWS_OF_PROBABILITIES",
    "NOT_OFFERED",
    "TAGGER_LAWS",
    "Law",
    "check_classifier_laws",
    "check_laws",
    "check_tagger_laws",
    "laws_for",
]
