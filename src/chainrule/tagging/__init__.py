"""Tagging: models that give each word of a sentence a tag, such as its part of speech.

In reading order:

    contract.py   what a tagger is
    reading.py    words as the arrays that a network takes
    examples.py   tagged sentences as examples, and the objective
    neural_tagger.py  a network as a tagger
    training.py   the kind: how one is built, trained and loaded
    tag.py        texts in, words with their tags out
    evaluate.py   accuracy, also on unknown words, and which tags are confused
"""

from __future__ import annotations

from chainrule.tagging.evaluate import evaluate_tagger

__all__ = ["evaluate_tagger"]
