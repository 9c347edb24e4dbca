"""Tasks: language models put to work, each with the field's metric.

spelling/      spelling correction: a noisy channel and a language model
nbest/         n-best lists ordered anew: word error rates, weights of scores
pairs.py       minimal pairs: which of two sentences a model prefers
filtering/     the fluent part of a corpus: documents of low perplexity
prediction.py  suggestions as one types: the keystrokes that they save
anomaly.py     the least likely lines of a log, and the tokens that make them so
objects.py     JSON objects of a file, each with the place that errors name
"""

from __future__ import annotations

from chainrule.tasks.anomaly import Anomaly, anomalies
from chainrule.tasks.filtering.filter import Filtered, filter_corpus, filter_texts
from chainrule.tasks.nbest.lists import NbestList
from chainrule.tasks.nbest.rerank import rerank
from chainrule.tasks.pairs import minimal_pairs
from chainrule.tasks.prediction import Keystrokes, keystrokes
from chainrule.tasks.spelling.correct import Correction, correct

__all__ = [
    "Anomaly",
    "Correction",
    "Filtered",
    "Keystrokes",
    "NbestList",
    "anomalies",
    "correct",
    "filter_corpus",
    "filter_texts",
    "keystrokes",
    "minimal_pairs",
    "rerank",
]
