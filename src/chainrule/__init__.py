"""chainrule: every family of language model behind one small interface.

A language model gives every text a probability, one token at a time: ln p(x) = Σ ln p(x_t | x_<t).
This docstring is a lesson, and it runs.

>>> import chainrule as cr

A string is text, and a list of strings is several texts; a file is a `pathlib.Path`. Here are three sentences of a
famous toy. A model is trained on them: a trigram model that knows only what it has counted (maximum likelihood).

>>> corpus = ["i love cats", "i love dogs", "cats chase mice"]
>>> lm = cr.train("ngram", corpus, order=3, smoothing="mle")

Its tokenizer turns text into small integers and back. 0, 1 and 2 are <unk>, <s> and </s>, which no text becomes.

>>> lm.tokenizer.encode("i love cats").tolist()
[4, 5, 3]
>>> lm.tokenizer.decode([4, 5, 3])
'i love cats'

The chain rule at work. Two of three sentences begin with "i"; "love" always follows; then it is cats or dogs, half
and half; and then the line ends. So p = 2/3 · 1 · 1/2 · 1.

>>> import math
>>> round(math.exp(lm.log_prob("i love cats")), 6)
0.333333

What was never counted is impossible, and a perplexity that has to cover it is infinite. Smoothing mends that.

>>> lm.perplexity("i love mice")
inf
>>> smooth = cr.train("ngram", corpus, order=3, smoothing="laplace")
>>> round(smooth.perplexity("i love mice"), 2)
5.59

Every model has the same small contract. A state stands for what was read; it is a value, and can be extended in
several ways without being changed.

>>> after_i = lm.extend(lm.start(1), lm.tokenizer.encode("i")[None])
>>> after_love = lm.extend(after_i, lm.tokenizer.encode("love")[None])
>>> p = cr.to_numpy(lm.next_log_probs(after_love))[0]
>>> {lm.tokenizer.token(i): float(round(math.exp(p[i]), 3)) for i in range(len(p)) if p[i] > -math.inf}
{'cats': 0.5, 'dogs': 0.5}

Decoding needs nothing but that contract: how to choose is a small value, and values compose.

>>> cr.generate(lm, "cats", cr.Greedy())
'cats chase mice'
>>> cr.generate(smooth, "i", cr.Temperature(0.8) | cr.TopP(0.9), seed=3)
'i love dogs'

So does help for someone who writes: a prompt is text, which may stop inside a word.

>>> [(s.word, round(s.probability, 3)) for s in cr.suggest(lm, "i love c")]
[('cats', 1.0)]

And so does evaluation.

>>> measured = cr.evaluate(smooth, corpus)
>>> measured.tokens, round(measured.perplexity, 2)
(12, 4.28)
>>> cr.score(smooth, ["i love cats", "mice love cats"]).perplexity.round(2).tolist()
[4.07, 7.5]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from chainrule._version import __version__

if TYPE_CHECKING:
    from chainrule.arrays import PAD, to_numpy
    from chainrule.compose.dynamic import Dynamic
    from chainrule.compose.mix import mix
    from chainrule.decode.drafts import Draft
    from chainrule.decode.generate import Generation, generate, generate_many, stream
    from chainrule.decode.strategies import (
        Beam,
        FrequencyPenalty,
        Greedy,
        MinP,
        PresencePenalty,
        RepetitionPenalty,
        Sample,
        Strategy,
        Temperature,
        TopK,
        TopP,
    )
    from chainrule.decode.suggest import Suggestion, suggest
    from chainrule.encoders.masked.filling import Filled, fill
    from chainrule.encoders.seq2seq.alignments import Alignment, align
    from chainrule.encoders.seq2seq.translate import translate
    from chainrule.encoders.tagging.evaluate import evaluate_tagger
    from chainrule.encoders.tagging.tag import tag
    from chainrule.errors import ChainruleError
    from chainrule.evaluation.compare import compare
    from chainrule.evaluation.measure import Measured, evaluate
    from chainrule.evaluation.surprisal import Scores, score, score_lines
    from chainrule.inside.diagnosis import Diagnosis, diagnose
    from chainrule.inside.explain import explain
    from chainrule.inside.explanation import Explanation
    from chainrule.kinds import load
    from chainrule.lm import LanguageModel, State
    from chainrule.ngram.arpa.model import load_arpa, save_arpa
    from chainrule.ngram.mix import interpolate
    from chainrule.pipeline.prepare import TokenizerChoice
    from chainrule.pipeline.resume import resume
    from chainrule.pipeline.train import train
    from chainrule.report.write import Report, make_report, write_report
    from chainrule.tasks.anomalies import Anomaly, anomalies
    from chainrule.tasks.filtering.counts import Filtered
    from chainrule.tasks.filtering.filter import filter_corpus, filter_texts
    from chainrule.tasks.nbest.lists import NbestList
    from chainrule.tasks.nbest.rerank import rerank
    from chainrule.tasks.pairs import minimal_pairs
    from chainrule.tasks.prediction import Keystrokes, keystrokes
    from chainrule.tasks.spelling.correct import Correction, correct
    from chainrule.text.corpus import Corpus
    from chainrule.text.pairs import Pairs
    from chainrule.tokens.base import Tokenizer
    from chainrule.tokens.registry import load_tokenizer, train_tokenizer
    from chainrule.training.records.curves import curves

_HOMES = {
    "chainrule.arrays": ("PAD", "to_numpy"),
    "chainrule.compose.dynamic": ("Dynamic",),
    "chainrule.compose.mix": ("mix",),
    "chainrule.decode.drafts": ("Draft",),
    "chainrule.decode.generate": ("Generation", "generate", "generate_many", "stream"),
    "chainrule.decode.strategies": (
        "Beam",
        "FrequencyPenalty",
        "Greedy",
        "MinP",
        "PresencePenalty",
        "RepetitionPenalty",
        "Sample",
        "Strategy",
        "Temperature",
        "TopK",
        "TopP",
    ),
    "chainrule.decode.suggest": ("Suggestion", "suggest"),
    "chainrule.errors": ("ChainruleError",),
    "chainrule.evaluation.compare": ("compare",),
    "chainrule.evaluation.measure": ("Measured", "evaluate"),
    "chainrule.evaluation.surprisal": ("Scores", "score", "score_lines"),
    "chainrule.inside.diagnosis": ("Diagnosis", "diagnose"),
    "chainrule.inside.explain": ("explain",),
    "chainrule.inside.explanation": ("Explanation",),
    "chainrule.kinds": ("load",),
    "chainrule.lm": ("LanguageModel", "State"),
    "chainrule.encoders.masked.filling": ("Filled", "fill"),
    "chainrule.ngram.arpa.model": ("load_arpa", "save_arpa"),
    "chainrule.ngram.mix": ("interpolate",),
    "chainrule.encoders.seq2seq.alignments": ("Alignment", "align"),
    "chainrule.encoders.seq2seq.translate": ("translate",),
    "chainrule.report.write": ("Report", "make_report", "write_report"),
    "chainrule.text.corpus": ("Corpus",),
    "chainrule.text.pairs": ("Pairs",),
    "chainrule.tokens.base": ("Tokenizer",),
    "chainrule.tokens.registry": ("load_tokenizer", "train_tokenizer"),
    "chainrule.pipeline.prepare": ("TokenizerChoice",),
    "chainrule.pipeline.resume": ("resume",),
    "chainrule.pipeline.train": ("train",),
    "chainrule.tasks.anomalies": ("Anomaly", "anomalies"),
    "chainrule.tasks.filtering.counts": ("Filtered",),
    "chainrule.tasks.filtering.filter": ("filter_corpus", "filter_texts"),
    "chainrule.tasks.prediction": ("Keystrokes", "keystrokes"),
    "chainrule.tasks.nbest.lists": ("NbestList",),
    "chainrule.tasks.nbest.rerank": ("rerank",),
    "chainrule.tasks.pairs": ("minimal_pairs",),
    "chainrule.tasks.spelling.correct": ("Correction", "correct"),
    "chainrule.encoders.tagging.evaluate": ("evaluate_tagger",),
    "chainrule.encoders.tagging.tag": ("tag",),
    "chainrule.training.records.curves": ("curves",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "PAD",
    "Alignment",
    "Anomaly",
    "Beam",
    "ChainruleError",
    "Corpus",
    "Correction",
    "Diagnosis",
    "Draft",
    "Dynamic",
    "Explanation",
    "Filled",
    "Filtered",
    "FrequencyPenalty",
    "Generation",
    "Greedy",
    "Keystrokes",
    "LanguageModel",
    "Measured",
    "MinP",
    "NbestList",
    "Pairs",
    "PresencePenalty",
    "RepetitionPenalty",
    "Report",
    "Sample",
    "Scores",
    "State",
    "Strategy",
    "Suggestion",
    "Temperature",
    "Tokenizer",
    "TokenizerChoice",
    "TopK",
    "TopP",
    "__version__",
    "align",
    "anomalies",
    "compare",
    "correct",
    "curves",
    "diagnose",
    "evaluate",
    "evaluate_tagger",
    "explain",
    "fill",
    "filter_corpus",
    "filter_texts",
    "generate",
    "generate_many",
    "interpolate",
    "keystrokes",
    "load",
    "load_arpa",
    "load_tokenizer",
    "make_report",
    "minimal_pairs",
    "mix",
    "rerank",
    "resume",
    "save_arpa",
    "score",
    "score_lines",
    "stream",
    "suggest",
    "tag",
    "to_numpy",
    "train",
    "train_tokenizer",
    "translate",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # Public names are imported when they are first used, so that `chainrule --help` waits for none of them.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'chainrule' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
