"""`explain`: how a model predicts one token, in the way that the model declares.

A model declares the function that explains it as `explained_by`, a path MODULE:NAME. The function takes the model,
the ids that it reads, the id that it predicts, the number of `last` tokens that a graph covers, and a `Progress`,
and returns an `Explanation`. A model of a plug-in declares its own.
"""

from __future__ import annotations

from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.explanation import Explanation
from chainrule.explanation.reading import ids_and_target
from chainrule.system.plugins import import_object
from chainrule.system.progress import Reports, as_progress

LAST = 3
"""The default number of tokens, the last ones, that the graph of a recurrent network covers."""


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
    gives a `MixtureExplanation`: the weight of each of its models, and the probability by each of them. A network
    gives a `NetworkExplanation` with its graph, which for a recurrent network and a bag of words covers the `last`
    tokens before the target, and for other networks all tokens that they read.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", cr.Corpus.from_text("i love cats\\ni love dogs\\n"), order=2, smoothing="mle")
    >>> print(explain(lm, "i love cats").title)
    p(cats | … love) = 0.5
    """
    if last < 1:
        raise DiagnosisError(f"the last tokens of the graph should be at least 1, not {last}")
    LanguageModel.expect(lm)
    reports = as_progress(progress)
    if not is_explained(lm):
        raise ModelError(f"a model of the kind {lm.kind} cannot be explained: it declares no `explained_by`")
    ids, target = ids_and_target(lm, text, reports, next_word=next_word, token=token)
    explained: Explanation = import_object(lm.explained_by)(lm, ids, target, last, reports)  # type: ignore[attr-defined]
    return explained


def is_explained(lm: LanguageModel) -> bool:
    """Return True if a model declares the function that explains it."""
    return hasattr(lm, "explained_by")
