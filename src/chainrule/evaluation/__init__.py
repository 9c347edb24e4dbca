"""Evaluation: how good a model is, on one scale.

In reading order:

    metrics.py     entropy, cross-entropy, KL divergence, perplexity, bits per byte
    measure.py     `evaluate`: a model measured on a text
    replies.py     a model measured on prompts and their replies
    surprisal.py   `score`: ln p of many texts and their tokens, as arrays
    pseudo.py      pseudo-log-likelihoods of texts under a masked model
    records.py     the surprisal of each record of a file, and the most surprising ones
    intervals.py   confidence intervals over documents
    variety.py     how much texts repeat themselves and vary
"""

from __future__ import annotations

from chainrule.evaluation.measure import Measured
from chainrule.evaluation.surprisal import Scores, score_lines
from chainrule.evaluation.variety import Variety, self_bleu, variety_of

__all__ = ["Measured", "Scores", "Variety", "score_lines", "self_bleu", "variety_of"]
