"""Classification: models that give a text one of several labels, such as its language or its genre.

In reading order:

    contract.py   what a classifier is, and `classify`: texts in, labels out
    bayes.py      the generative one: a language model for each label, and Bayes' rule
    examples.py   labelled texts as examples of a network, and the objective
    neural_classifier.py  a network as a classifier
    training.py   the task and the neural kind: how a network is built, trained and loaded
    evaluate.py   accuracy, macro F1, which labels are confused, and how far probabilities can be trusted
"""

from __future__ import annotations

from chainrule.classification.evaluate import evaluate_classifier

__all__ = ["evaluate_classifier"]
