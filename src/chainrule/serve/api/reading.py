"""/v1/score, /v1/next and /v1/beam: the probabilities of a text and of its continuations, token by token."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.arrays import array_namespace, refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode.generate import context_of, prompt_ids, text_only
from chainrule.decode.sample import scores_for
from chainrule.decode.strategies import normalised
from chainrule.decode.tree import grow_tree
from chainrule.serve.api.answers import find_model
from chainrule.serve.api.pieces import as_json, check_entries, in_pieces, off_loop
from chainrule.serve.api.schemas import BeamRequest, NextRequest, ScoreRequest
from chainrule.serve.api.texts import NEARBY, bounded
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.batching.scheduler import READ_AT_ONCE
from chainrule.serve.scoring import ScoredIds, score_ids
from chainrule.tokens.base import utf8
from chainrule.tokens.spelling import text_spans

router = APIRouter()


@router.post("/v1/score")
async def score(body: ScoreRequest, request: Request) -> Response:
    """Score each token of a text: its surprisal in bits, its bytes in the text, and the best alternatives.

    A line end is a token of its own. The last line has one too, of no bytes where the text has none there.
    """
    served = find_model(request, body.model)
    lm = served.lm
    text = utf8(body.text.replace("\r\n", "\n"))
    ids = await off_loop(len(text), lambda: lm.tokenizer.encode_lines(text).tolist() if text else [])
    check_entries(len(ids), body.top)
    (found,) = await score_ids(served, [ids], body.top)
    tokens = await in_pieces(len(ids) * (1 + body.top), _entries(lm, text, ids, found))
    # 0 less the sum: a text without tokens has 0 bits, not -0
    bits = 0 - math.fsum(found.log_probs) / math.log(2) if all(map(math.isfinite, found.log_probs)) else math.inf
    mean = bits / len(ids) if ids else 0.0
    return await as_json(
        {
            "object": "score",
            "model": served.name,
            "normalised": lm.normalised,
            "tokens": tokens,
            "bytes": len(text),
            "bits": bits if math.isfinite(bits) else None,
            "bits_per_byte": bits / len(text) if text and math.isfinite(bits) else None,
            "perplexity": 2.0**mean if math.isfinite(bits) and mean < 1000 else None,
        }
    )


def _entries(lm: LanguageModel, text: bytes, ids: list[int], found: ScoredIds) -> Iterator[dict[str, Any]]:
    """Yield what is sent of each token of a text."""
    tokenizer, spans = lm.tokenizer, text_spans(lm.tokenizer, text, ids)
    for place, (token, log_prob, (start, end)) in enumerate(zip(ids, found.log_probs, spans, strict=True)):
        entry: dict[str, Any] = {
            "id": token,
            "token": tokenizer.token(token),
            "start": start,
            "end": end,
            "log_prob": bounded(log_prob),
            "bits": bounded(-log_prob / math.log(2)) if math.isfinite(log_prob) else -bounded(log_prob),
        }
        if found.tops:
            entry["rank"] = found.ranks[place]
            nearby = ids[max(0, place - NEARBY) : place]
            entry["top"] = [
                {
                    "id": other,
                    "token": tokenizer.token(other),
                    "text": tokenizer.continuation(nearby, [other]),
                    "log_prob": bounded(p),
                }
                for other, p in found.tops[place]
            ]
        yield entry


@router.post("/v1/next")
async def next_token(body: NextRequest, request: Request) -> Response:
    """Predict the next token after a prompt: p by the model, and q by the strategy, 0 for tokens it cuts off."""
    served = find_model(request, body.model)
    lm = served.lm
    strategy = text_only(lm, body.strategy(lm.tokenizer.vocab_size))

    def run(items: list[Any]) -> Iterator[Any]:
        for prompt in items:
            ids = prompt_ids(lm, prompt)
            state = yield from read_in_parts(lm, ids)
            yield predict(ids, state)

    def predict(ids: list[int], state: State) -> dict[str, Any]:
        ids_BT = np.asarray([ids], dtype=np.int64).reshape(1, -1)
        log_probs_BV, from_BV = lm.next_log_probs(state), scores_for(lm, strategy, state)
        refuse_nan(to_numpy(log_probs_BV))
        xp, device = array_namespace(log_probs_BV), log_probs_BV.device
        chosen_BV = normalised(strategy.apply(from_BV, lambda: xp.asarray(ids_BT, device=device)))
        p_V, q_V = np.exp(to_numpy(log_probs_BV)[0]), np.exp(to_numpy(chosen_BV)[0])
        tokens = [
            {
                "id": token,
                "token": lm.tokenizer.token(token),
                "text": lm.tokenizer.continuation(ids[-NEARBY:], [token]),
                "p": float(p_V[token]),
                "q": float(q_V[token]),
            }
            for token in np.argsort(-p_V, kind="stable")[: body.top].tolist()
        ]
        entropy_bits = float(-(p_V[p_V > 0] * np.log2(p_V[p_V > 0])).sum())
        return {"tokens": tokens, "kept": int((q_V > 0).sum()), "entropy_bits": entropy_bits}

    key = "next", body.model_dump_json(exclude={"prompt"})
    (found,) = await served.scheduler.bulk(key, [body.prompt], run)
    return await as_json({"object": "next", "model": served.name, **found})


@router.post("/v1/beam")
async def beam(body: BeamRequest, request: Request) -> Response:
    """Search the most likely texts, as a tree: every hypothesis that was looked at, and which were kept."""
    served = find_model(request, body.model)
    lm = served.lm

    def run(items: list[Any]) -> Iterator[Any]:
        for prompt in items:
            yield from beam_tree(lm, prompt, body.width, body.max_tokens)

    # each by itself, so that it can be given up by itself
    (found,) = await served.scheduler.bulk(object(), [body.prompt], run)
    return await as_json({"object": "beam", "model": served.name, **found})


def read_in_parts(lm: LanguageModel, ids: Sequence[int]) -> Generator[Any, None, State]:
    """Return the state after a prompt; yield PAUSE after each part of a long one."""
    state = lm.start(1)
    for first in range(0, len(ids), READ_AT_ONCE):
        if first:
            yield PAUSE
        state = lm.extend(state, np.asarray([ids[first : first + READ_AT_ONCE]], dtype=np.int64))
    return state


def beam_tree(lm: LanguageModel, prompt: str, width: int, steps: int) -> Iterator[Any]:
    """Yield PAUSE after each step of a beam search, then its tree (decode/tree.py)."""
    read = prompt_ids(lm, context_of(lm, prompt))
    state = yield from read_in_parts(lm, read)
    for found in grow_tree(lm, state, read, width, steps):
        tree = found
        yield PAUSE
    yield tree
