"""ln p of a continuation after a context, and text that is written until a stop string.

Context and continuation are tokenised together, as the text that they are. A token that reaches from one into the
other, such as " sat" after the context "the cat ", belongs to the continuation. A model of lines reads the last
line of the context, and begins anew at each line end of the continuation, which it predicts.

>>> import chainrule as cr
>>> texts = ["i love cats", "i love dogs", "cats chase mice"]
>>> lm = cr.train("ngram", texts, order=3, smoothing="mle", tokenizer="word")
>>> [scored] = score_continuations(lm, [("i love", " cats")])
>>> round(scored.log_prob, 4), scored.is_greedy  # cats and dogs are equally likely, and cats has the lower id
(-0.6931, True)
>>> write_until(lm, ["cats"], ["mice"], cr.Greedy(), max_tokens=10)
[' chase ']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chainrule.arrays import batches, checked, pad, to_numpy, without
from chainrule.contract.lm import LanguageModel, State, tokens_at_once
from chainrule.decode.generate import Growing, context_of, end_of, prompt_ids, text_only
from chainrule.decode.healing import find_respellings, respell, slices
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import sample_steps
from chainrule.decode.strategies import Strategy
from chainrule.errors import DecodingError
from chainrule.tokens.base import utf8
from chainrule.tokens.spelling import text_spans

_CELLS = 1 << 24  # numbers of [B, V] that are held at once


class Scored(NamedTuple):
    """The score of a continuation."""

    log_prob: float
    """ln p of the continuation's tokens after the context."""
    is_greedy: bool
    """True if greedy decoding writes this continuation; what is spelled with <unk> is never written."""


@dataclass(frozen=True)
class Part:
    """Ids that are scored after others; of a model of lines, those of one line."""

    context: list[int]
    target: list[int]


def score_continuations(
    lm: LanguageModel, pairs: Sequence[tuple[str, str]], *, rows: int | None = None
) -> list[Scored]:
    """Score the continuation of each pair (context, continuation); `rows` is the most that are read at once."""
    parts = [split(lm, context, continuation) for context, continuation in pairs]
    flat = [part for some in parts for part in some]
    scored = iter(_score_parts(lm, flat, rows))
    found = [[next(scored) for _ in some] for some in parts]
    return [Scored(sum(one.log_prob for one in some), all(one.is_greedy for one in some)) for some in found]


def split(lm: LanguageModel, context: str, continuation: str) -> list[Part]:
    """Return the ids of a context and of its continuation: one pair, or one for each line of a model of lines."""
    context = context_of(lm, context)
    if lm.context == "stream":
        return [_cut(lm, context, continuation)]
    first, *others = continuation.split("\n")
    lines = [(context, first), *(("", line) for line in others)]
    ended = [(before, line + "\n") for before, line in lines[:-1]]
    return [_cut(lm, before, line) for before, line in (*ended, lines[-1])]


def _cut(lm: LanguageModel, context: str, continuation: str) -> Part:
    """Return the ids of both together, cut before the first token that ends inside the continuation."""
    text, boundary = utf8(context + continuation), len(utf8(context))
    ids: list[int] = lm.tokenizer.encode(context + continuation).tolist()
    ends = [end for _, end in text_spans(lm.tokenizer, text, ids)]
    first = next((place for place, end in enumerate(ends) if end > boundary), len(ids))
    return Part(ids[:first], ids[first:])


def _score_parts(lm: LanguageModel, parts: Sequence[Part], rows: int | None) -> list[Scored]:
    """Score each part; parts of like length are read together."""
    found = [Scored(0.0, True)] * len(parts)
    lengths = np.asarray([len(part.context) + len(part.target) for part in parts], dtype=np.int64)
    for batch in batches(lengths, tokens_at_once(lm)) if parts else ():
        for some in slices(batch, rows or len(batch)):
            here = [parts[place] for place in some]
            state = lm.extend(lm.start(len(here)), pad([part.context for part in here]))
            targets_BT = pad([part.target for part in here])
            scores_BT = checked(to_numpy(lm.score(targets_BT, state)), normalised=lm.normalised)
            greedy = _greedy_rows(lm, state, [part.target for part in here])
            for row, place in enumerate(some):
                found[place] = Scored(float(scores_BT[row].sum()), row in greedy)
    return found


def _greedy_rows(lm: LanguageModel, state: State, targets: Sequence[Sequence[int]]) -> set[int]:
    """Return the rows whose targets greedy decoding writes; a row is left alone after its first other token."""
    unknown = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    greedy: set[int] = set()
    for rows in slices(np.arange(len(targets)), max(1, _CELLS // lm.tokenizer.vocab_size)):
        going, at = rows, state.select(rows)
        place = 0
        while len(going):
            left = np.asarray([len(targets[row]) > place for row in going])
            greedy |= set(going[~left].tolist())
            if not left.any():
                break
            going, at = going[left], at.select(np.flatnonzero(left))
            wanted_B = np.asarray([targets[row][place] for row in going])
            best_B = np.argmax(to_numpy(without(lm.next_log_probs(at), unknown)), axis=-1)
            kept = np.flatnonzero(best_B == wanted_B)
            going, at = going[kept], at.select(kept)
            if len(going):
                at = lm.extend(at, wanted_B[kept][:, None])
            place += 1
    return greedy


def write_until(
    lm: LanguageModel,
    prompts: Sequence[str],
    stops: Sequence[str],
    strategy: Strategy,
    *,
    max_tokens: int,
    seed: int = 0,
) -> list[str]:
    """Return a continuation of each prompt, up to the first of the stop strings, which is left out.

    A model of lines stops at the end of the line in any case. All prompts are written in one batch.
    """
    if not prompts:
        return []
    if max_tokens < 0:
        raise DecodingError(f"the number of tokens should be at least 0, not {max_tokens}")
    strategy, stops = text_only(lm, strategy), [stop for stop in stops if stop]
    state, respellings = find_respellings(lm, [context_of(lm, prompt) for prompt in prompts], heal=max_tokens > 0)
    uniforms = Uniforms(seed, [prompt_ids(lm, prompt) for prompt in prompts])
    state, drawn, read = respell(lm, state, respellings, strategy, uniforms)
    growing = [Growing(lm, *row) for row in zip(prompts, respellings, (one.ids for one in drawn), strict=True)]
    texts = [""] * len(prompts)
    for piece in sample_steps(
        lm, state, strategy, uniforms, max_tokens=max_tokens, end=end_of(lm), read_BT=pad(read)
    ):
        for row, tokens in zip(piece.rows, piece.tokens, strict=True):
            growing[row].waiting += tokens
            texts[row] += growing[row].shown()
        if all(any(stop in texts[row] for stop in stops) for row in piece.active):
            break
    texts = [text + one.rest() for text, one in zip(texts, growing, strict=True)]
    return [text[: min((text.index(stop) for stop in stops if stop in text), default=None)] for text in texts]
