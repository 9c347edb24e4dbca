"""/v1/suggest, /v1/translate, /v1/tag, /v1/classify and /v1/fill: words, translations, tags, labels and gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.classification.contract import Classifier
from chainrule.decode.suggest import suggest
from chainrule.errors import ModelError
from chainrule.masked.contract import MASK, MaskedModel
from chainrule.masked.filling import fill
from chainrule.seq2seq.alignments import align
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import BEAM, translate_texts
from chainrule.serve.api.answers import find_model, in_bulk
from chainrule.serve.api.pieces import as_json
from chainrule.serve.api.schemas import ClassifyRequest, FillRequest, SuggestRequest, TagRequest, TranslateRequest
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.models import Served
from chainrule.tagging.contract import Tagger
from chainrule.tagging.tag import tag

router = APIRouter()

MOST_GAPS = 32
"""The most gaps of a text that is filled."""
_TEXTS_AT_ONCE = 32
"""Texts of all requests that are translated, tagged or classified together."""
_LETTERS_AT_ONCE = 10_000
"""Letters of such texts; a longer text is read by itself."""


@router.post("/v1/suggest")
async def suggest_words(body: SuggestRequest, request: Request) -> Response:
    """Suggest words that complete the text, or follow it."""
    served = find_model(request, body.model)
    lm = served.lm

    def work(text: str) -> list[dict[str, Any]]:
        return [asdict(one) for one in suggest(lm, text, body.k)]

    (found,) = await in_bulk(served, ("suggest", body.k), [body.text], work)
    return await as_json({"object": "list", "model": served.name, "data": found})


@router.post("/v1/translate")
async def translate(body: TranslateRequest, request: Request) -> Response:
    """Translate each source, by beam search."""
    served = find_model(request, body.model)
    lm = served.expect(ConditionalModel.expect)

    def translated(some: list[str]) -> Iterator[dict[str, Any]]:
        for text, (best, *_) in zip(some, translate_texts(lm, some, replace(BEAM, width=body.beams)), strict=True):
            result = {"text": best.text, "log_prob": best.log_prob, "finished": best.is_finished}
            if body.alignments and text.strip():
                aligned = align(lm, text, best.text).of_words()
                weights = [[round(float(weight), 4) for weight in row] for row in aligned.weights_TS]
                result["alignment"] = {"source": aligned.source, "target": aligned.target, "weights": weights}
            yield result

    found = await _in_groups(served, ("translate", body.beams, body.alignments), body.texts, translated)
    return await as_json({"object": "list", "model": served.name, "data": found})


@router.post("/v1/tag")
async def tag_words(body: TagRequest, request: Request) -> Response:
    """Tag the words of each text."""
    served = find_model(request, body.model)
    tagger = served.expect(Tagger.expect)

    def tagged(some: list[str]) -> Iterator[dict[str, Any]]:
        for found in tag(tagger, some, split=body.split):
            words = [
                {"word": word, "tag": name, "probability": round(math.exp(float(log_prob)), 6)}
                for word, name, log_prob in zip(found.words, found.tags, found.log_probs, strict=True)
            ]
            yield {"words": words}

    found = await _in_groups(served, ("tag", body.split), body.texts, tagged)
    return await as_json({"object": "list", "model": served.name, "tags": tagger.tags, "data": found})


@router.post("/v1/classify")
async def classify_texts(body: ClassifyRequest, request: Request) -> Response:
    """Give each text a label, and the probability of every label."""
    served = find_model(request, body.model)
    classifier = served.expect(Classifier.expect)

    def labelled(some: list[str]) -> Iterator[dict[str, Any]]:
        for found in classifier.classify(some):
            probabilities = {label: round(math.exp(value), 6) for label, value in found.log_probs.items()}
            yield {"label": found.label, "probabilities": probabilities}

    if any(not text.strip() for text in body.texts):
        raise ModelError("a text is empty: there is nothing to classify")
    found = await _in_groups(served, ("classify",), body.texts, labelled)
    return await as_json({"object": "list", "model": served.name, "labels": classifier.labels, "data": found})


@router.post("/v1/fill")
async def fill_gaps(body: FillRequest, request: Request) -> Response:
    """Fill the gaps of a text, each of which is written [MASK]."""
    served = find_model(request, body.model)
    model = served.expect(MaskedModel.expect)
    if (gaps := body.text.count(MASK)) > MOST_GAPS:  # each is filled in turn, with all of the text read again
        raise ModelError(f"the text has {gaps:,} gaps: {MOST_GAPS} at most are filled at once")
    key = "fill", body.top
    (found,) = await in_bulk(served, key, [body.text], lambda text: asdict(fill(model, text, body.top)))
    return await as_json({"object": "fill", "model": served.name, **found})


async def _in_groups(
    served: Served, key: tuple[Hashable, ...], texts: list[str], work: Callable[[list[str]], Iterable[Any]]
) -> list[Any]:
    """Return what `work` makes of each text, on the thread of the model; it gets some texts at a time."""

    def run(items: list[Any]) -> Iterator[Any]:
        for some in _groups(items):
            yield from work(some)
            yield PAUSE

    return await served.scheduler.bulk(_key(texts, *key), texts, run)


def _key(texts: list[str], *what: Hashable) -> Hashable:
    """Return the key of texts, under which requests are done together; many texts have one of their own.

    They fill a group by themselves, and can then be given up by themselves.
    """
    is_group = len(texts) >= _TEXTS_AT_ONCE or sum(map(len, texts)) >= _LETTERS_AT_ONCE
    return what, object() if is_group else None


def _groups(texts: list[str]) -> Iterator[list[str]]:
    """Yield texts that are read together, so that the texts of others, or their end, need not wait long."""
    group: list[str] = []
    for text in texts:
        if group and (len(group) == _TEXTS_AT_ONCE or sum(map(len, group)) + len(text) > _LETTERS_AT_ONCE):
            yield group
            group = []
        group.append(text)
    if group:
        yield group
