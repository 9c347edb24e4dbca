"""Evaluation: how good a model is, on one scale.

In reading order:

    metrics.py     entropy, cross-entropy, KL divergence, perplexity, bits per byte
    measure.py     `evaluate`: a model measured on a text
    replies.py     a model measured on prompts and their replies
    surprisal.py   `score`: ln p of many texts and their tokens, as arrays
    pseudo.py      pseudo-log-likelihoods of texts under a masked model
    records.py     the surprisal of each record of a file, and the most surprising ones
    intervals.py   confidence intervals over documents
"""

from __future__ import annotations

from chainrule.evaluation.measure import Measured
from chainrule.evaluation.surprisal import Scores, score_lines

__all__ = ["Measured", "Scores", "score_lines"]
