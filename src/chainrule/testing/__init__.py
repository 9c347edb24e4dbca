"""The laws of the contract, for the kinds of this package and for those of others.

A kind of another package tests itself with

    from chainrule.testing import check_laws
    check_laws(lm)

where `lm` is a model with a small vocabulary. `laws.py` has a function for each law, `LAWS` names them all. Taggers
have laws of their own, in `taggers.py`: `check_tagger_laws(tagger)`.
"""

from __future__ import annotations

from chainrule.testing.laws import LAWS, LAWS_OF_PROBABILITIES, Law, check_laws, laws_for
from chainrule.testing.taggers import TAGGER_LAWS, check_tagger_laws

__all__ = [
    "LAWS",
    "LAWS_OF_PROBABILITIES",
    "TAGGER_LAWS",
    "Law",
    "check_laws",
    "check_tagger_laws",
    "laws_for",
]
