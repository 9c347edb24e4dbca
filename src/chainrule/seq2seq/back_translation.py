"""Back-translation: new sources for targets, by a model that translates the other way (Sennrich and others 2016).

The targets stay as people wrote them, so that a decoder learns nothing wrong; the new sources say the same in other
words. Drawn at random, they differ more than those of a search, and several of them teach more than one.
"""

from __future__ import annotations

from chainrule.contract.model import Model
from chainrule.decode.strategies import Beam, Strategy
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import translate_texts
from chainrule.system.progress import SILENT, Progress
from chainrule.text.pairs import GivenPairs, as_pairs


def turned(pairs: GivenPairs) -> list[tuple[str, str]]:
    """Return pairs with source and target exchanged, from which a model learns to translate the other way."""
    return [(target, source) for source, target in as_pairs(pairs)]


def back_translated(
    model: Model,
    pairs: GivenPairs,
    strategy: Strategy | Beam,
    *,
    each: int = 1,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[tuple[str, str]]:
    """Return the targets of pairs with new sources, `each` for every target; `model` translates targets to sources.

    Sources that are not finished are left out, as are those that are the same.

    >>> import chainrule as cr
    >>> pairs = [("a b", "b a"), ("b c", "c b"), ("c a", "a c")] * 4
    >>> model = cr.train("seq2seq", turned(pairs), cell="gru", width=8, layers=1, steps=1, tokenizer="word")
    >>> {target for _, target in back_translated(model, pairs, cr.Greedy())} <= {"b a", "c b", "a c"}
    True
    """
    targets = [target for _, target in as_pairs(pairs)]
    lm = ConditionalModel.expect(model)
    found = translate_texts(lm, targets, strategy, best=each, seed=seed, progress=progress)
    made = []
    for target, written in zip(targets, found, strict=True):
        sources = {" ".join(one.text.split()) for one in written if one.is_finished}
        made += [(source, target) for source in sorted(sources) if source]
    return made
