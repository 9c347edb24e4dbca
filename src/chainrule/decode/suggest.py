"""What can come next, for someone who writes: tokens, and the words that complete or follow a text.

A suggestion is text to append. It completes the word that is being written, or is the next word; it ends before the
white space after it, or at the end of the line. Its probability is

    p(suggestion | text) = Σ p(tokens | text) over the tokens that spell the suggestion and then end the word,

taken over the most likely tokens: a beam search, over when no hypothesis can reach the best words found.

Axes: F hypotheses, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import pad, refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, next_probs, prepare
from chainrule.decode.generate import added_text, context_of
from chainrule.decode.healing import find_respellings
from chainrule.decode.top import top_of_row
from chainrule.errors import DecodingError

_LONGEST = 40  # tokens of a word
_WIDTH = 4  # hypotheses for each word that is asked for
_MOST = 1000  # suggestions of a model whose tokens are parts of words
_SPACES = " \t\r\v\f\n"
_NEGLIGIBLE = 1e-5  # a beginning that is so much less likely than the best is dropped


class _ShortFigures:
    """Shows floats by four digits."""

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        shown = (f"{name}={v:.4g}" if isinstance(v, float) else f"{name}={v!r}" for name, v in values.items())
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class NextToken(_ShortFigures):
    """A token that can come after a text."""

    id: int
    adds: str
    """What it adds to the text; only its end, where it begins inside the text."""
    probability: float


@dataclass(frozen=True, repr=False)
class Suggestion(_ShortFigures):
    """A word that can come after a text."""

    word: str
    completion: str
    """What to append to the text; begins with a space if that ends the word before."""
    probability: float


def next_tokens(lm: LanguageModel, text: str, k: int = 10, *, heal: bool = True) -> list[NextToken]:
    """The k most likely tokens after a text, the most likely first; some may begin inside the text."""
    _check(lm, k)
    state, (respellings,) = find_respellings(lm, [context_of(lm, text)], heal=heal)
    found: dict[tuple[int, str], float] = defaultdict(float)
    starts = respellings.best(2 * k)
    for respelling in starts:
        if respelling.adds:
            found[respelling.ids[-1], added_text(lm, text, respellings, [*respelling.ids], False)] += math.exp(
                respelling.log_prob
            )
    whole = [respelling for respelling in starts if not respelling.adds]
    if whole:
        state = lm.extend(state.select(np.zeros(len(whole), np.int64)), pad([one.ids for one in whole]))
        log_probs_FV = to_numpy(lm.next_log_probs(state))
        refuse_nan(log_probs_FV)
        for respelling, log_probs_V in zip(whole, log_probs_FV, strict=True):
            for token in top_of_row(log_probs_V, k).tolist():
                adds = added_text(lm, text, respellings, [*respelling.ids, token], False)
                found[token, adds] += math.exp(respelling.log_prob + log_probs_V[token])
    best = sorted(found.items(), key=lambda entry: -entry[1])[:k]
    return [NextToken(token, adds, p) for (token, adds), p in best if p > 0]


def suggest(
    lm: LanguageModel, text: str = "", k: int = 5, *, at_least: float = 0.0, once: bool = False
) -> list[Suggestion]:
    """The k most likely words that complete a text or follow it, the most likely first; fewer if it knows no more.

    Words of a probability below `at_least` are left out. The first call loads what the model needs to answer the
    next ones fast, unless `once` says that none will come. A model whose tokens are parts of words gives at most
    1,000 words.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"] * 3, order=2, tokenizer="word")
    >>> cr.suggest(lm, "i love c")
    [Suggestion(word='cats', completion='ats', probability=1)]
    """
    _check(lm, k, at_least)
    if not once:
        prepare(lm)
    if lm.tokenizer.splitting is not None:
        return [word for word in _words(lm, text, k) if word.probability >= at_least]
    k = min(k, _MOST)
    context = context_of(lm, text)
    typed = context[max(context.rfind(space) for space in _SPACES) + 1 :]  # what follows the last white space
    found = _Search(lm, text, k).run()
    best = sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))[:k]
    return [Suggestion(_word(typed, completion), completion, p) for completion, p in best if p >= at_least]


def _words(lm: LanguageModel, text: str, k: int) -> list[Suggestion]:
    """The suggestions of a model of words: its next tokens."""
    likely = next_tokens(lm, text, k + 2)  # the end of a line and <unk> are no words
    words = [token for token in likely if lm.tokenizer.special(token.id) is None]
    return [Suggestion(lm.tokenizer.token(word.id), word.adds, word.probability) for word in words[:k]]


@dataclass(frozen=True)
class _Hypothesis:
    ids: tuple[int, ...]
    added: bytes
    """What the tokens add to the text."""

    @cached_property
    def is_word(self) -> bool:
        """True if a word has begun, and its characters are complete."""
        return bool(self.added.strip()) and self.added.decode(errors="ignore").encode() == self.added


class _Search:
    """A beam search for words whose tokens are characters, bytes or parts of words."""

    def __init__(self, lm: LanguageModel, text: str, k: int) -> None:
        self.lm, self.text, self.k = lm, text, k
        self.spelling = lm.tokenizer.spelling
        if self.spelling is not None:
            self.ends_V = self.spelling.is_spaced.astype(np.float32)
            self.ends_V[lm.tokenizer.eos] = 1.0
        self.found: dict[bytes, float] = defaultdict(float)

    def run(self) -> dict[str, float]:
        """The words found: what each adds to the text, and its probability."""
        lm = self.lm
        state, (self.respellings,) = find_respellings(lm, [context_of(lm, self.text)])
        starts = self.respellings.best(_WIDTH * self.k)
        least = starts[0].log_prob + math.log(_NEGLIGIBLE)
        starts = [respelling for respelling in starts if respelling.log_prob > least]
        live = [_Hypothesis(respelling.ids, self._added(respelling.ids)) for respelling in starts]
        p_F = np.exp(np.asarray([respelling.log_prob for respelling in starts], dtype=np.float32))
        state = lm.extend(state.select(np.zeros(len(live), np.int64)), pad([h.ids for h in live]))
        for _ in range(_LONGEST):
            p_FV = next_probs(lm, state)
            p_FV *= p_F[:, None]
            self._note_ends(live, p_FV)
            rows, live, p_F = self._longer(live, p_FV)
            if not live:
                break
            state = lm.extend(state.select(rows), np.asarray([[h.ids[-1]] for h in live]))
        return {added.decode(): p for added, p in self.found.items()}

    def _note_ends(self, live: list[_Hypothesis], p_FV: NDArray[np.float32]) -> None:
        """Note the words that end here, with the probability of all tokens that end them."""
        if self.spelling is None:  # which tokens end a word is then found out one by one
            return
        for hypothesis, p in zip(live, (p_FV @ self.ends_V).tolist(), strict=True):
            if hypothesis.is_word:
                self.found[hypothesis.added] += p

    def _longer(
        self, live: list[_Hypothesis], p_FV: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], list[_Hypothesis], NDArray[np.float32]]:
        """Return the best hypotheses of one more token, the rows that they continue, and their p."""
        # a word is no more likely than its beginning
        least = sorted(self.found.values())[-self.k] if len(self.found) >= self.k else 0.0
        best = float(p_FV.max(initial=0.0))
        refuse_nan(best)  # the largest of some numbers is NaN if one of them is
        cells = np.flatnonzero(p_FV > max(least, _NEGLIGIBLE * best))
        rows, tokens = np.divmod(cells, p_FV.shape[1])
        if self.spelling is not None:
            is_word_F = np.asarray([hypothesis.is_word for hypothesis in live])
            goes_on = self.spelling.is_solid[tokens] | (self.spelling.is_spaced[tokens] & ~is_word_F[rows])
            rows, tokens = rows[goes_on], tokens[goes_on]
        best_places = top_of_row(p_FV[rows, tokens], _WIDTH * self.k)
        rows, tokens = rows[best_places], tokens[best_places]
        longer = [self._longer_by(live[row], token) for row, token in zip(rows, tokens.tolist(), strict=True)]
        p_F = p_FV[rows, tokens]
        if self.spelling is None:
            for row, hypothesis, p in zip(rows, longer, p_F.tolist(), strict=True):
                if hypothesis is None and live[row].is_word:
                    self.found[live[row].added] += p
        kept = [i for i, hypothesis in enumerate(longer) if hypothesis is not None]
        return rows[kept], [hypothesis for hypothesis in longer if hypothesis is not None], p_F[kept]

    def _longer_by(self, hypothesis: _Hypothesis, token: int) -> _Hypothesis | None:
        """The hypothesis with one more token; None if that ends its word, or the text."""
        ids = (*hypothesis.ids, token)
        if self.spelling is not None:
            return _Hypothesis(ids, hypothesis.added + self.spelling.pieces[token])
        added = self._added(ids)
        ends = hypothesis.is_word and added[len(hypothesis.added) :][:1].isspace()
        return None if ends or self.lm.tokenizer.special(token) is not None else _Hypothesis(ids, added)

    def _added(self, ids: tuple[int, ...]) -> bytes:
        if self.spelling is not None:
            return b"".join(self.spelling.pieces[token] for token in ids)[len(self.respellings.rest) :]
        return added_text(self.lm, self.text, self.respellings, [*ids], False).encode()


def _word(typed: str, completion: str) -> str:
    """The word that a completion completes, or is."""
    return completion.strip(_SPACES) if completion[:1] in _SPACES else typed + completion


def _check(lm: object, k: int, at_least: float = 0.0) -> None:
    LanguageModel.expect(lm)
    if k < 1:
        raise DecodingError(f"the number of suggestions should be at least 1, not {k}")
    if not 0 <= at_least <= 1:
        raise DecodingError(f"the least probability should be between 0 and 1, not {at_least}")
