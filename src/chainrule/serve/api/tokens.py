"""/tokenize, /detokenize, /tokenizer_info, /v1/merges and /v1/embeddings: text as ids, and as vectors."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.arrays import refuse_nan, to_numpy
from chainrule.contract.lm import offered
from chainrule.errors import ModelError, TokenizerError
from chainrule.folder import TEXT
from chainrule.masked.contract import MaskedModel
from chainrule.serve.api.answers import find_model
from chainrule.serve.api.pieces import as_json, in_pieces, off_loop
from chainrule.serve.api.schemas import (
    DetokenizeRequest,
    EmbeddingRequest,
    MergesRequest,
    TokenizeRequest,
    one_by_one,
)
from chainrule.serve.api.texts import check_prompt, prompt_tokens
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.batching.scheduler import READ_AT_ONCE
from chainrule.serve.models import Served
from chainrule.serve.scoring import sequences
from chainrule.tokens.base import Tokenizer, utf8
from chainrule.tokens.spelling import text_spans
from chainrule.tokens.subwords.merges import replay_merges, spelled_words
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer, readable

router = APIRouter()


def tokenizer_of(served: Served) -> Tokenizer:
    """Return the tokenizer of the text that a model reads."""
    tokenizers = served.model.tokenizers
    if not tokenizers:
        raise TokenizerError(f"{served.name} has no tokenizer")
    return tokenizers[TEXT] if TEXT in tokenizers else next(iter(tokenizers.values()))


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, request: Request) -> Response:
    """Split a text into tokens: their ids, names, and bytes in the text."""
    tokenizer = tokenizer_of(find_model(request, body.model))
    text, ids = await off_loop(len(body.text), lambda: (utf8(body.text), tokenizer.encode(body.text).tolist()))
    begin = [tokenizer.bos] if body.add_special_tokens else []
    names = await in_pieces(len(text), map(tokenizer.token, begin + ids))
    spans = await in_pieces(len(text), text_spans(tokenizer, text, ids))
    return await as_json(
        {
            "tokens": begin + ids,
            "count": len(begin) + len(ids),
            "max_model_len": None,
            "token_strs": names,
            "spans": [(0, 0)] * len(begin) + spans,
            "bytes": len(text),
        }
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
    """Join tokens to a text."""
    tokenizer = tokenizer_of(find_model(request, body.model))
    if body.tokens and max(body.tokens) >= tokenizer.vocab_size:
        raise TokenizerError(f"there is no such token: tokens are below {tokenizer.vocab_size}")
    text = await off_loop(len(body.tokens), lambda: tokenizer.decode(body.tokens))
    return await as_json({"prompt": text, "content": text})


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request, model: str | None = None) -> Response:
    """Describe the tokenizer."""
    tokenizer = tokenizer_of(find_model(request, model))
    return await as_json(
        {
            "tokenizer_class": type(tokenizer).__name__,
            "name": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "lossless": tokenizer.lossless,
            # as text that becomes the token: clients encode these, and </s> in a text is four letters
            "bos_token": None,
            "eos_token": "\n",
            "pad_token": None,
            "unk_token": None,
            "bos_token_id": tokenizer.bos,
            "eos_token_id": tokenizer.eos,
            "unk_token_id": tokenizer.unk,
            "chat_template": None,
        }
    )


@router.post("/v1/merges")
async def merges(body: MergesRequest, request: Request) -> Response:
    """Show how byte-level BPE encodes a text: its words in bytes, and for each merge the words that it changes."""
    served = find_model(request, body.model)
    tokenizer = tokenizer_of(served)
    utf8(body.text)
    if not isinstance(tokenizer, SubwordTokenizer):
        raise TokenizerError(f"{served.name} has no merges: its tokens are of the kind {tokenizer.name}, not bpe")
    found = await in_pieces(len(tokenizer.definition), replay_merges(tokenizer, body.text))
    steps = [
        {
            "left": readable(one.left),
            "right": readable(one.right),
            "rank": one.rank,
            "changed": [[number, [readable(token) for token in word]] for number, word in one.changed.items()],
        }
        for one in found
    ]
    words = [[readable(byte) for byte in word] for word in spelled_words(body.text)]
    return await as_json({"object": "merges", "model": served.name, "words": words, "steps": steps})


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts as vectors: the mean of the features from which a network predicts each next token."""
    served = find_model(request, body.model)
    model: Any = served.model
    is_masked = isinstance(model, MaskedModel) and hasattr(model, "features")
    if not is_masked and offered(served.lm, "features") is None:
        raise ModelError(f"{served.name} has no vectors: embeddings come from networks")
    texts = one_by_one(body.input)
    for text in texts:
        check_prompt(model, text)
    rows = await in_pieces(sum(map(len, texts)), (prompt_tokens(model, text) for text in texts))

    def run(items: list[Any]) -> Iterator[Any]:
        for ids in items:
            parts = _features_of_masked(model, ids) if is_masked else _features(model, ids)
            total_D: Any = 0.0
            for features_TD in parts:
                total_D = total_D + np.sum(features_TD, axis=0, dtype=np.float64)
                yield PAUSE
            mean_D = np.asarray(total_D) / max(len(ids), 1)
            refuse_nan(mean_D)
            yield mean_D / max(float(np.linalg.norm(mean_D)), 1e-12)

    # many tokens by themselves, so that they can be given up by themselves
    key = "embed", object() if sum(map(len, rows)) > READ_AT_ONCE else None
    vectors = await served.scheduler.bulk(key, rows, run)
    if body.dimensions not in (None, len(vectors[0])):
        raise ModelError(
            f"dimensions: the vectors of {served.name} have {len(vectors[0])} numbers; no other is offered"
        )
    data = await in_pieces(
        sum(map(len, vectors)),
        (
            {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
            for index, vector in enumerate(vectors)
        ),
    )
    count = sum(map(len, rows))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return await as_json({"object": "list", "data": data, "model": served.name, "usage": usage})


def _features(lm: Any, ids: list[int]) -> Iterator[np.ndarray]:
    """Yield the features after each token of a text, [T, D], part by part; of an empty text those at its start."""
    if not ids:
        yield to_numpy(lm.features(lm.start(1)))
    for sequence in sequences(lm, ids):
        state = lm.start(1)
        for first in range(0, len(sequence), READ_AT_ONCE):
            ids_BT = np.asarray([sequence[first : first + READ_AT_ONCE]], dtype=np.int64)
            _, features_BTD, state = lm.read_features(state, ids_BT)
            # a feature predicts a token, so the first one of a part comes after the part before
            yield np.concatenate([to_numpy(features_BTD)[0][1:], to_numpy(lm.features(state))])


def _features_of_masked(model: Any, ids: list[int]) -> Iterator[np.ndarray]:
    """Yield the vector of each token of a text, [T, D], read in rows as long as the model takes."""
    most, end = model.longest - 1, model.tokenizer.eos
    for sequence in sequences(model, ids) or [[end]]:
        for first in range(0, len(sequence), most):
            own = sequence[first : first + most]
            row = own if own[-1] == end else [*own, end]
            yield to_numpy(model.features(np.asarray([row], dtype=np.int64)))[0][: len(own)]


def _encoded(vector: np.ndarray, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [round(float(value), 7) for value in vector]
