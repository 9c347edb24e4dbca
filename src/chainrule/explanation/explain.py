"""`explain`: how a model predicts one token, whichever of the families it belongs to."""

from __future__ import annotations

from chainrule.autodiff.model import KINDS as ON_TAPE
from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.explanation import Explanation
from chainrule.explanation.mixtures import WeighsParts, explain_mixture
from chainrule.explanation.networks import explain_network
from chainrule.explanation.ngrams import explain_any_length, explain_ngram
from chainrule.explanation.reading import ids_and_target
from chainrule.ngram.infinite.model import AnyLengthModel
from chainrule.ngram.model import NgramModel
from chainrule.system.progress import Reports, as_progress

LAST = 3
"""The default number of tokens, the last ones, that the graph of a recurrent network covers."""
KINDS = ("ngram", "anygram", "mixture", *ON_TAPE)
"""The kinds of model that can be explained."""


def explain(
    lm: LanguageModel,
    text: str,
    *,
    next_word: str | None = None,
    token: int | None = None,
    last: int = LAST,
    progress: Reports = False,
) -> Explanation:
    """Explain how a model predicts the last token of a text, the `token`-th, or `next_word` after the text.

    An n-gram model gives an `NgramExplanation`: contexts, weights, and the product or sum that they make. A mixture
    gives a `MixtureExplanation`: the weight of each of its models, and what each of them says. A network
    gives a `NetworkExplanation` with its graph, which for a recurrent network and a bag of words covers the `last`
    tokens before the target, and for other networks all tokens that they read.
    """
    if last < 1:
        raise DiagnosisError(f"the last tokens of the graph should be at least 1, not {last}")
    LanguageModel.expect(lm)
    reports = as_progress(progress)
    if not is_explained(lm):
        raise ModelError(f"a model of the kind {lm.kind} cannot be explained; those that can: {', '.join(KINDS)}")
    ids, target = ids_and_target(lm, text, next_word, token, reports)
    if isinstance(lm, NgramModel):
        return explain_ngram(lm, ids, target)
    if isinstance(lm, AnyLengthModel):
        return explain_any_length(lm, ids, target)
    if isinstance(lm, WeighsParts):
        return explain_mixture(lm, ids, target)
    return explain_network(lm, ids, target, last, reports)


def is_explained(lm: LanguageModel) -> bool:
    """Whether `explain` has something to say about a model."""
    return lm.kind in ON_TAPE or is_explained_by_numbers(lm)


def is_explained_by_numbers(lm: LanguageModel) -> bool:
    """Whether a model's probability is a product or sum of a few numbers, and not what a network computes."""
    return isinstance(lm, NgramModel | AnyLengthModel | WeighsParts)
