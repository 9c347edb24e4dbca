"""/v1/inside and /v1/neighbours: what goes on inside a model when it predicts one token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.diagnosis import Diagnosis, diagnose, is_diagnosed
from chainrule.explanation.explanation import explain, is_explained
from chainrule.explanation.neighbours import neighbours
from chainrule.explanation.reading import text_ids
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
"""The units of a gate that are sent one by one: those that change most over the text."""
DIGITS = 4
_COPIES = asyncio.Semaphore(1)


@router.post("/v1/inside")
async def inside(body: InsideRequest, request: Request) -> Response:
    """Look inside a model while it predicts one token of a text.

    Networks: gradients, gates and attention weights. N-gram models: the contexts that were tried, with counts and
    weights. Mixtures: the weight and probability of each model. Encoder-decoders: where in the source they look.
    """
    served = find_model(request, body.model)
    look = _way_to_look(served.model)
    if look is look_at_network:  # it makes a copy, which needs no turn of the model's thread; one at a time
        async with _COPIES:
            found = await asyncio.to_thread(look_at_network, served.lm, body)
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
    """Return gradients through time, gates over the text, and attention weights."""
    notes, texts = _Notes(), _texts(lm, asked.text)
    found = diagnose(lm, asked.text, token=asked.token, longest=LONGEST, progress=notes)
    if found.attention_LHTT is not None and found.attention_LHTT.size > 2 * MOST_WEIGHTS:
        heads = math.prod(found.attention_LHTT.shape[:2])
        fewer = max(int(math.sqrt(2 * MOST_WEIGHTS / heads)), 2)
        notes = _Notes()
        found = diagnose(lm, asked.text, token=asked.token, longest=fewer, progress=notes)
    states = {
        name: [_significant(norms_T) for norms_T in by_layer] for name, by_layer in found.state_gradients.items()
    }
    return {
        "family": "network",
        "text_tokens": texts,
        "token": asked.token or len(texts),
        "tokens": list(found.tokens),
        "target": found.target,
        **_likelihood(found.nats),
        "gradients": {"embedding": _significant(found.embedding_gradient_T), **states},
        "gates": [*_gates(found)],
        "attention": None if found.attention_LHTT is None else _attention(found.attention_LHTT),
        "notes": notes.notes,
    }


def _gates(found: Diagnosis) -> Iterator[dict[str, Any]]:
    for name, layers in found.gates.items():
        for layer, values_TH in enumerate(layers):
            spread_H = values_TH.std(axis=0)
            units = sorted(np.argsort(-spread_H, kind="stable")[:UNITS].tolist())
            yield {
                "gate": name,
                "layer": layer,
                # a candidate is a tanh, gates are sigmoids
                "range": [-1, 1] if name == "candidate" else [0, 1],
                "mean": _rounded(values_TH.mean(axis=1)),
                "units": [{"unit": unit, "values": _rounded(values_TH[:, unit])} for unit in units],
            }


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
    found = explain(lm, asked.text, token=asked.token, progress=notes)
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
        "token": asked.token or len(texts),
        "is_probability": found.is_probability,
        **record,
        "title": found.title,
        "equation": equation,
        "lines": [line for line in lines if line],
        "notes": notes.notes,
    }


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
