"""Applications of language models, each with its usual metric.

spelling/      spelling correction: a noisy channel and a language model
nbest/         re-ranking of n-best lists: word error rates, weights of scores
pairs.py       minimal pairs: how often a model prefers the right one of two sentences
probes.py      made questions: a word over a gap, two orders, agreement, a task by examples; perplexity by position
filtering/     the fluent part of a corpus: documents of low perplexity
prediction.py  suggestions while typing: the keystrokes that they save
anomaly.py     the least likely lines of a log, and the tokens that make them so
games/         Shannon's guessing game, twenty questions, and real text against generated text
objects.py     the JSON objects of a file, each with its place for errors
"""

from __future__ import annotations

from chainrule.tasks.anomaly import Anomaly, anomalies
from chainrule.tasks.filtering.filter import Filtered, filter_corpus, filter_texts
from chainrule.tasks.nbest.lists import NbestList
from chainrule.tasks.nbest.rerank import rerank
from chainrule.tasks.pairs import minimal_pairs
from chainrule.tasks.prediction import Keystrokes, keystrokes
from chainrule.tasks.probes import OfGap, by_position, probe
from chainrule.tasks.spelling.correct import Correction, correct

__all__ = [
    "Anomaly",
    "Correction",
    "Filtered",
    "Keystrokes",
    "NbestList",
    "OfGap",
    "anomalies",
    "by_position",
    "correct",
    "filter_corpus",
    "filter_texts",
    "keystrokes",
    "minimal_pairs",
    "probe",
    "rerank",
]
