"""/v1/inside and /v1/neighbours: what goes on inside a model when it predicts one token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.diagnosis import Diagnosis, diagnose, is_diagnosed
from chainrule.explanation.explanation import explain, is_explained
from chainrule.explanation.following import Followed
from chainrule.explanation.neighbours import neighbours
from chainrule.explanation.reading import text_ids, token_of
from chainrule.seq2seq.alignments import align_ids
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import translate
from chainrule.serve.api.answers import find_model, in_bulk
from chainrule.serve.api.pieces import as_json
from chainrule.serve.api.schemas import InsideRequest, NeighboursRequest
from chainrule.serve.api.texts import LOWEST
from chainrule.system.progress import SILENT, Silent

router = APIRouter()

LONGEST = 64
"""The most tokens that a network reads here, and the most of a source or a target."""
MOST_WEIGHTS = 400_000
"""The most attention weights of an answer; where heads are many, fewer tokens are read."""
UNITS = 8
"""The units of a layer that are sent one by one: those whose state changes most over the text."""
HIDDEN = 24
"""The hidden features of a block that are sent one by one: the largest."""
LIKELY = 10
"""The most likely tokens that are sent, and the most of those that a block would give."""
DIGITS = 4
_BY_FEATURE = ("attention", "middle", "feedforward", "out")
"""The numbers of a block that are sent as they are, by their names there."""
_COPIES = ThreadPoolExecutor(1, "chainrule-inside")


@router.post("/v1/inside")
async def inside(body: InsideRequest, request: Request) -> Response:
    """Look inside a model while it predicts one token of a text, or the token after it.

    Networks: gradients, gates and states, attention weights, and the way of one token through a Transformer. N-gram
    models: the contexts that were tried, with counts and weights. Mixtures: the weight and probability of each
    model. Encoder-decoders: where in the source they look.
    """
    served = find_model(request, body.model)
    look = _way_to_look(served.model)
    if look is look_at_network:  # it makes a copy, which needs no turn of the model's thread; one at a time
        found = await asyncio.get_running_loop().run_in_executor(_COPIES, look_at_network, served.lm, body)
    else:
        (found,) = await in_bulk(served, "inside", [body], lambda asked: look(served.model, asked))
    return await as_json({"object": "inside", "model": served.name, "kind": served.model.kind, **found})


@router.post("/v1/neighbours")
async def nearest(body: NeighboursRequest, request: Request) -> Response:
    """Find the tokens whose vectors in a network's embedding table are nearest to a token's, by cosine."""
    served = find_model(request, body.model)

    def search(asked: NeighboursRequest) -> dict[str, Any]:
        token, found = neighbours(served.model, asked.token, asked.top)
        data = [one._asdict() | {"similarity": round(one.similarity, 6)} for one in found]
        return {"id": token.id, "token": token.token, "data": data}

    (found,) = await in_bulk(served, "neighbours", [body], search)
    return await as_json({"object": "neighbours", "model": served.name, **found})


class _Notes(Silent):
    """Keeps the notes of a function, and shows no progress."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: object) -> None:
        self.notes.append(str(message))


def _way_to_look(model: Model) -> Any:
    """Return the function that looks into a model, or raise an error that says what the model offers."""
    if isinstance(model, ConditionalModel):
        return look_at_translation
    if isinstance(model, LanguageModel):
        if is_diagnosed(model):
            return look_at_network
        if is_explained(model):
            return look_at_numbers
        offers = "its scores are at /v1/score, its next tokens at /v1/next"
    else:
        offers = f"it can {model.purpose}, at /v1/{model.verb}"
    raise ModelError(f"a model of the kind {model.kind} shows nothing of its inside; {offers}")


# -- networks ---------------------------------------------------------------------------------------------


def look_at_network(lm: LanguageModel, asked: InsideRequest) -> dict[str, Any]:
    """Return gradients through time, gates over the text, attention weights, and the way of the last token."""
    notes, texts = _Notes(), _texts(lm, asked.text)
    found = diagnose(lm, asked.text, after=asked.after, token=asked.token, longest=LONGEST, progress=notes)
    if found.attention_LHTT is not None and found.attention_LHTT.size > 2 * MOST_WEIGHTS:
        heads = math.prod(found.attention_LHTT.shape[:2])
        fewer = max(int(math.sqrt(2 * MOST_WEIGHTS / heads)), 2)
        notes = _Notes()
        found = diagnose(lm, asked.text, after=asked.after, token=asked.token, longest=fewer, progress=notes)
    norms = {
        name: [_significant(norms_T) for norms_T in by_layer] for name, by_layer in found.state_gradients.items()
    }
    return {
        "family": "network",
        "text_tokens": texts,
        "token": _place(asked, texts),
        "tokens": list(found.tokens),
        "target": found.target,
        **_likelihood(found.nats),
        "likely": [] if found.log_probs_V is None else _likely(lm, found.log_probs_V, LIKELY),
        "gradients": {"embedding": _significant(found.embedding_gradient_T), **norms},
        "gates": [*_over_time(found, found.gates, "gate")],
        "states": [*_over_time(found, found.states, "state")],
        "attention": None if found.attention_LHTT is None else _attention(found.attention_LHTT),
        "path": None if found.followed is None else _path(lm, found.followed, notes),
        "notes": notes.notes,
    }


def _over_time(found: Diagnosis, named: Mapping[str, list[np.ndarray]], what: str) -> Iterator[dict[str, Any]]:
    """Yield the values of each gate or state of each layer: the mean, and the same few units of all of them."""
    for name, layers in named.items():
        for layer, values_TH in enumerate(layers):
            # the memory of an LSTM is c
            state_TH = (found.states.get("c") or found.states.get("h") or layers)[layer]
            units = sorted(np.argsort(-state_TH.std(axis=0), kind="stable")[:UNITS].tolist())
            yield {
                what: name,
                "layer": layer,
                # gates are sigmoids, a candidate is a tanh; a state has no bound of its own
                "range": None if what == "state" else [-1, 1] if name == "candidate" else [0, 1],
                "mean": _rounded(values_TH.mean(axis=1)),
                "units": [{"unit": unit, "values": _rounded(values_TH[:, unit])} for unit in units],
            }


def _path(lm: LanguageModel, found: Followed, notes: _Notes) -> dict[str, Any] | None:
    """Return the vectors of the last token, what each part adds, and what the head would predict on the way."""
    sizes = [sum(one.size for one in (block.attended.query_HK, block.out_D)) for block in found.blocks]
    if 4 * sum(sizes) > MOST_WEIGHTS:
        notes.note("the network has too many features to follow a token through all of them")
        return None
    return {
        "embedding": _rounded(found.embedding_D),
        "position": None if found.position_D is None else _rounded(found.position_D),
        "first": _rounded(found.first_D),
        "guesses": [_likely(lm, log_probs_V, LIKELY // 2) for log_probs_V in found.log_probs_SV],
        "blocks": [
            {
                **{name: [*map(_rounded, rows)] for name, rows in block.attended.of_token().items()},
                **{name: _rounded(getattr(block, f"{name}_D")) for name in _BY_FEATURE},
                "heads": _significant(block.head_norms_H),
                "hidden": _hidden(block.hidden_I),
            }
            for block in found.blocks
        ],
    }


def _hidden(hidden_I: np.ndarray) -> dict[str, Any]:
    """Return how many hidden features there are, how many are above 0, and the largest."""
    largest = np.argsort(-np.abs(hidden_I), kind="stable")[:HIDDEN].tolist()
    units = [{"unit": unit, "value": round(float(hidden_I[unit]), DIGITS)} for unit in largest]
    return {"count": len(hidden_I), "above": int((hidden_I > 0).sum()), "units": units}


def _likely(lm: LanguageModel, log_probs_V: np.ndarray, count: int) -> list[dict[str, Any]]:
    best = np.argsort(-log_probs_V, kind="stable")[:count].tolist()
    return [{"token": lm.tokenizer.token(one), "probability": math.exp(log_probs_V[one])} for one in best]


def _attention(weights_LHTT: np.ndarray) -> list[list[list[list[float]]]]:
    """Return by layer, head and query the weights of the keys up to the query; later keys have none."""
    return [
        [[_rounded(row[: query + 1]) for query, row in enumerate(weights_TT)] for weights_TT in weights_HTT]
        for weights_HTT in weights_LHTT
    ]


# -- n-grams and mixtures ---------------------------------------------------------------------------------


def look_at_numbers(lm: LanguageModel, asked: InsideRequest) -> dict[str, Any]:
    """Return the contexts that were tried with their weights, or the models of a mixture with theirs."""
    notes, texts = _Notes(), _texts(lm, asked.text)
    found = explain(lm, asked.text, after=asked.after, token=asked.token, progress=notes)
    record = found.record()
    likelihood = _likelihood(record.pop("nats"))
    if not found.is_probability:
        likelihood["score"] = likelihood.pop("probability")
    record |= likelihood
    equation = str(getattr(found, "equation", ""))
    lines = [found.title, equation, str(record.get("formula", "")), *record.get("sums", ())]
    return {
        "family": "mixture" if "parts" in record else "ngram",
        "text_tokens": texts,
        "token": _place(asked, texts),
        "is_probability": found.is_probability,
        **_plain(record),
        "title": found.title,
        "equation": equation,
        "lines": [line for line in lines if line],
        "notes": notes.notes,
    }


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of an explanation with its tokens as they are: a program needs no quotes around spaces."""
    plain = record | {"tokens": [token_of(one) for one in record["tokens"]], "target": token_of(record["target"])}
    plain["likely"] = [one | {"token": token_of(one["token"])} for one in record["likely"]]
    for name in {"contexts", "terms"} & record.keys():
        plain[name] = [
            one | {"context": None if one["context"] is None else [token_of(word) for word in one["context"]]}
            for one in record[name]
        ]
    return plain


# -- encoder-decoders -------------------------------------------------------------------------------------


def look_at_translation(lm: ConditionalModel, asked: InsideRequest) -> dict[str, Any]:
    """Return where in the source the decoder looks for each token of the target: the mean, and each head."""
    notes = []
    if not asked.text.strip():
        raise DiagnosisError("the text has no token to translate: give some words")
    source = lm.encode_source(asked.text)
    if len(source) > LONGEST:
        notes.append(f"of {len(source) - 1:,} tokens of the source the first {LONGEST - 1} are read")
        source = np.append(source[: LONGEST - 1], source[-1])
    text = lm.source_tokenizer.decode(source[:-1].tolist()) if notes else asked.text
    translation = translate(lm, text) if asked.target is None else asked.target
    target = np.asarray([*lm.tokenizer.encode(translation), lm.tokenizer.eos])
    if len(target) > LONGEST:
        notes.append(f"of {len(target) - 1:,} tokens of the target the first {LONGEST - 1} are shown")
        target = np.append(target[: LONGEST - 1], target[-1])
    aligned = align_ids(lm, source, target)
    weights_LHTS = lm.attention_weights(source, target)
    assert weights_LHTS is not None  # align_ids refuses a model without
    heads = weights_LHTS if weights_LHTS.size <= MOST_WEIGHTS else weights_LHTS[:0]
    return {
        "family": "translation",
        "text": translation,
        "source": list(aligned.source),
        "target": list(aligned.target),
        "weights": [_rounded(row) for row in aligned.weights_TS],
        "attention": [[[_rounded(row) for row in weights_TS] for weights_TS in head] for head in heads],
        "notes": notes,
    }


# -- numbers for JSON -------------------------------------------------------------------------------------


def _texts(lm: LanguageModel, text: str) -> list[str]:
    """Return the tokens of the text, one of which is predicted."""
    return [lm.tokenizer.token(token) for token in text_ids(lm, text, SILENT)]


def _place(asked: InsideRequest, texts: list[str]) -> int:
    """Return the number of the token that is predicted, from 1 on; the one after the text follows the last."""
    return len(texts) + 1 if asked.after else asked.token or len(texts)


def _likelihood(nats: float) -> dict[str, float]:
    """Return -ln p in the forms of the answer; an impossible token has the number that stands for ln 0."""
    is_finite = math.isfinite(nats)
    return {
        "log_prob": -nats if is_finite else LOWEST,
        "bits": nats / math.log(2) if is_finite else -LOWEST,
        "probability": math.exp(-nats) if is_finite else 0.0,
    }


def _rounded(values: np.ndarray) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(np.asarray(values, dtype=np.float64)), DIGITS).tolist()
    return rounded


def _significant(values: np.ndarray) -> list[float]:
    """Round norms of gradients, which may be very small, to four digits; a value that is no number becomes 0."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 0.0 for value in values.tolist()]
