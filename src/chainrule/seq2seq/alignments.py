"""Alignments: how much attention the decoder paid to each token of a source for each token of a target.

The weight α_ts is the attention to source token s when target token t was predicted; the weights of a target token
sum to one. A Transformer has weights for each head of each layer; the alignment is the mean over the heads of the
last layer but one, or of the only layer, since these heads agree best with reference alignments (Garg
and others 2019, "Jointly learning to align and translate"; tests hold it for toy tasks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.contract.model import Model
from chainrule.errors import ModelError
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import translate
from chainrule.tokens.base import Tokenizer


@dataclass(frozen=True, repr=False)
class Alignment:
    """A source and a target, and the attention of each part of the target to each part of the source.

    It draws itself in a notebook.

    >>> Alignment(("die", "Katze"), ("the", "cat"), np.array([[0.9, 0.1], [0.2, 0.8]])).best()
    [0, 1]
    """

    source: tuple[str, ...]
    """The tokens, or the words, of the source; </s> is the last."""
    target: tuple[str, ...]
    weights_TS: np.ndarray
    """A row for each part of the target, which sums to one."""

    def __repr__(self) -> str:
        return f"<Alignment of {' '.join(self.source)!r} and {' '.join(self.target)!r}>"

    def _repr_svg_(self) -> str:
        from chainrule.seq2seq.pictures import alignment_picture

        return alignment_picture([self])

    def best(self) -> list[int]:
        """Return the index of the source part that each target part looked at most."""
        return [int(index) for index in self.weights_TS.argmax(axis=1)]

    def of_words(self) -> Alignment:
        """Return the alignment of words: the weights of a source word are summed, those of a target word averaged.

        A token that begins with a space begins a word, as those of subword tokenizers do; others stay as they are.
        """
        sources, targets = _words(self.source), _words(self.target)
        summed = np.stack([self.weights_TS[:, part].sum(axis=1) for part in sources], axis=1)
        mean = np.stack([summed[part].mean(axis=0) for part in targets])
        return Alignment(_joined(self.source, sources), _joined(self.target, targets), mean)


def align(model: Model, source: str, target: str | None = None) -> Alignment:
    """Align a source and a target; without a target, the model's own translation.

    >>> import chainrule as cr
    >>> pairs = [("a b", "b a"), ("b c", "c b"), ("c a", "a c")] * 4
    >>> model = cr.train("seq2seq", pairs, cell="gru", width=8, layers=1, steps=1, tokenizer="word")
    >>> found = align(model, "a b", "b a")
    >>> found.source, found.target, found.weights_TS.shape
    (('a', 'b', '</s>'), ('b', 'a', '</s>'), (3, 3))
    """
    lm = ConditionalModel.expect(model)
    target = translate(lm, source) if target is None else target
    ids = np.asarray([*lm.tokenizer.encode(target), lm.tokenizer.eos])
    return align_ids(lm, lm.encode_source(source), ids)


def align_ids(lm: ConditionalModel, source: np.ndarray, target: np.ndarray) -> Alignment:
    """Return the alignment of ids, both ended by </s>."""
    weights_LHTS = lm.attention_weights(source, target)
    if weights_LHTS is None:
        raise ModelError("this model has no attention, so there is no alignment: set attention when training")
    # the last layer but one, and the mean over its heads
    weights_TS = weights_LHTS[max(len(weights_LHTS) - 2, 0)].mean(axis=0)
    return Alignment(_names(lm.source_tokenizer, source), _names(lm.tokenizer, target), weights_TS)


def _names(tokenizer: Tokenizer, ids: np.ndarray) -> tuple[str, ...]:
    return tuple(tokenizer.token(int(one)) for one in ids)


def _words(tokens: Sequence[str]) -> list[slice]:
    """Return the stretches of tokens that are words; </s> is one by itself."""
    has_spaces = any(token.startswith(" ") for token in tokens)
    begins = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or not has_spaces or token.startswith(" ") or i == len(tokens) - 1
    ]
    return [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(tokens)], strict=True)]


def _joined(tokens: Sequence[str], parts: Sequence[slice]) -> tuple[str, ...]:
    return tuple("".join(tokens[part]).strip() or "␣" for part in parts)
