"""Texts with gaps in, the best fillings out.

A gap, [MASK] in the text, stands for one token. If subwords contain the space before a word, the gap in
"the cat [MASK] on" includes the space before it, so that its filling begins a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chainrule.errors import ModelError
from chainrule.masked.contract import MASK, MaskedModel
from chainrule.tokens.base import Tokenizer

_SPACE = b" "


@dataclass(frozen=True)
class Filling:
    """A token for a gap."""

    text: str
    probability: float
    """p of the token at this gap, while all other gaps are open."""
    id: int


@dataclass(frozen=True)
class FilledText:
    """A text with all of its gaps filled."""

    text: str
    fillings: tuple[str, ...]
    probability: float
    """The product of p of each filling, given those to its left, while the gaps to its right are open."""


@dataclass(frozen=True)
class Filled:
    """The best fillings of a text."""

    gaps: tuple[tuple[Filling, ...], ...]
    """The best fillings of each gap by itself, the best first."""
    texts: tuple[FilledText, ...]
    """The best fillings of all gaps together, the best first, as a beam search from left to right finds them."""


@dataclass(frozen=True)
class _Gapped:
    """The ids of a text with gaps, ended by </s>, and which tokens may fill each gap."""

    ids: np.ndarray
    places: tuple[int, ...]
    may_fill: tuple[np.ndarray, ...]


def fill(model: MaskedModel, text: str, k: int = 5) -> Filled:
    """Return the k best fillings of each [MASK] of a text, and the k best of all of them together.

    >>> import chainrule as cr
    >>> small = {"width": 8, "layers": 1, "heads": 1, "window": 16, "steps": 1}
    >>> model = cr.train("masked", ["the cat sat", "a dog ran"] * 8, tokenizer="word", **small)
    >>> found = fill(model, "the [MASK] sat", k=2)
    >>> len(found.gaps), len(found.texts)
    (1, 2)
    """
    MaskedModel.expect(model)
    if k < 1:
        raise ModelError(f"k should be at least 1, not {k}")
    gapped = _gapped(model, text)
    log_probs_GV = model.predict(gapped.ids[None])
    gaps = []
    for log_probs_V, may_V in zip(log_probs_GV, gapped.may_fill, strict=True):
        best = _best(log_probs_V, may_V, k)
        gaps.append(tuple(Filling(_shown(model.tokenizer, i), float(np.exp(log_probs_V[i])), int(i)) for i in best))
    return Filled(tuple(gaps), tuple(_together(model, gapped, k)))


def gapped_ids(model: MaskedModel, text: str) -> np.ndarray:
    """Return the ids of a text for `MaskedModel.fill`: the id of a gap for each [MASK], and </s> at the end."""
    return _gapped(model, text).ids


def _together(model: MaskedModel, gapped: _Gapped, k: int) -> Iterator[FilledText]:
    """Yield the k best fillings of all gaps: each gap in turn is filled in the k best texts so far."""
    ids_BT, scores_B = gapped.ids[None], np.zeros(1)
    for number, (place, may_V) in enumerate(zip(gapped.places, gapped.may_fill, strict=True)):
        open_gaps = len(gapped.places) - number
        # the first open gap of each row
        log_probs_BV = model.predict(ids_BT)[::open_gaps]
        log_probs_BV = np.where(may_V, log_probs_BV, -np.inf)
        totals_N = (scores_B[:, None] + log_probs_BV).ravel()
        best_K = np.argsort(-totals_N, kind="stable")[:k]
        best_K = best_K[np.isfinite(totals_N[best_K])]
        rows_K, tokens_K = np.divmod(best_K, log_probs_BV.shape[1])
        ids_BT, scores_B = ids_BT[rows_K].copy(), totals_N[best_K]
        ids_BT[:, place] = tokens_K
    for row_T, score in zip(ids_BT, scores_B, strict=True):
        text = model.tokenizer.decode(row_T[:-1].tolist())
        fillings = tuple(_shown(model.tokenizer, int(row_T[place])) for place in gapped.places)
        yield FilledText(text, fillings, float(np.exp(score)))


def _best(log_probs_V: np.ndarray, may_V: np.ndarray, k: int) -> list[int]:
    order = np.argsort(-np.where(may_V, log_probs_V, -np.inf), kind="stable")[:k]
    return [int(i) for i in order if may_V[i]]


def _gapped(model: MaskedModel, text: str) -> _Gapped:
    """Return the text as ids with gaps; a text without any, or a longer one than the model takes, is an error."""
    sections = " ".join(text.split("\n")).split(MASK)
    if len(sections) == 1:
        raise ModelError(f"there is no {MASK} to fill in {text[:60]!r}: write it where a word is missing")
    if len(sections) > model.longest:
        raise ModelError(
            f"the text has {len(sections) - 1:,} gaps, and the model reads {model.longest:,} tokens: cut it"
        )
    tokenizer, ids = model.tokenizer, []
    spelling = _Spelling(tokenizer)
    places, may_fill = [], []
    for number, section in enumerate(sections):
        is_last = number + 1 == len(sections)
        takes_space = not is_last and spelling.has_spaces and section.endswith(" ")
        if takes_space:
            section = section[:-1]
        if section:
            ids += tokenizer.encode(section).tolist()
        if not is_last:
            places.append(len(ids))
            may_fill.append(spelling.may_fill(begins_word=takes_space))
            ids.append(model.mask)
    ids.append(tokenizer.eos)
    if len(ids) > model.longest:
        raise ModelError(f"the text has {len(ids):,} tokens, and the model reads {model.longest:,} at once: cut it")
    return _Gapped(np.asarray(ids), tuple(places), tuple(may_fill))


def gaps_take_spaces(tokenizer: Tokenizer) -> bool:
    """Return True if a gap includes the space before it, because tokens contain the space before a word."""
    return _Spelling(tokenizer).has_spaces


class _Spelling:
    """How the tokens of a vocabulary are spelled, as far as gaps are concerned."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        pieces = tokenizer.pieces() if tokenizer.splitting is None else None
        self.has_spaces = pieces is not None and any(p.startswith(_SPACE) and len(p) > 1 for p in pieces)
        """True if tokens contain the space before a word."""
        is_text = np.ones(tokenizer.vocab_size, bool)
        for special in (tokenizer.bos, tokenizer.eos, tokenizer.unk):
            if special is not None:
                is_text[special] = False
        self.begins_word = np.zeros(tokenizer.vocab_size, bool)
        for i, piece in enumerate(pieces or []):
            is_text[i] &= _is_text(piece) and bool(piece.strip() or not self.has_spaces)
            self.begins_word[i] = piece.startswith(_SPACE)
        self.is_text = is_text

    def may_fill(self, *, begins_word: bool) -> np.ndarray:
        """Return which tokens may fill a gap: readable ones that begin a word, or that continue one."""
        if not self.has_spaces:
            return self.is_text
        fits: np.ndarray = self.is_text & (self.begins_word == begins_word)
        return fits


def _is_text(piece: bytes) -> bool:
    try:
        return bool(piece.decode())
    except UnicodeDecodeError:
        return False


def _shown(tokenizer: Tokenizer, token: int) -> str:
    text = tokenizer.decode([token])
    return text.strip() or text
