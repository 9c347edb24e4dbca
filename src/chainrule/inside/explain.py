"""`explain`: how a model predicts one token, whichever of the families it belongs to."""

from __future__ import annotations

from chainrule.autodiff.model import KINDS as ON_TAPE
from chainrule.errors import DiagnosisError, ModelError
from chainrule.inside.explanation import Explanation
from chainrule.inside.networks import explain_network
from chainrule.inside.ngrams import explain_any_length, explain_ngram
from chainrule.inside.reading import ids_and_target
from chainrule.lm import LanguageModel
from chainrule.ngram.anylength.model import AnyLengthModel
from chainrule.ngram.model import NgramModel
from chainrule.system.progress import Reports, as_progress

LAST = 3
"""The default number of tokens, the last ones, that the graph of a recurrent network covers."""
KINDS = ("ngram", "anygram", *ON_TAPE)
"""The kinds of model that can be explained."""


def explain(
    lm: LanguageModel,
    text: str,
    *,
    next_word: str | None = None,
    last: int = LAST,
    progress: Reports = False,
) -> Explanation:
    """Explain how a model predicts the last token of a text, or `next_word` after the text.

    An n-gram model gives an `NgramExplanation`: contexts, weights, and the product or sum that they make. A network
    gives a `NetworkExplanation` with its graph, which for a recurrent network and a bag of words covers the `last`
    tokens before the target, and for other networks all tokens that they read.
    """
    if last < 1:
        raise DiagnosisError(f"the last tokens of the graph should be at least 1, not {last}")
    LanguageModel.expect(lm)
    reports = as_progress(progress)
    if isinstance(lm, NgramModel):
        return explain_ngram(lm, *ids_and_target(lm, text, next_word, reports))
    if isinstance(lm, AnyLengthModel):
        return explain_any_length(lm, *ids_and_target(lm, text, next_word, reports))
    if lm.kind not in ON_TAPE:
        raise ModelError(f"a model of the kind {lm.kind} cannot be explained; those that can: {', '.join(KINDS)}")
    return explain_network(lm, *ids_and_target(lm, text, next_word, reports), last, reports)
