"""/tokenize, /detokenize, /tokenizer_info, /v1/merges and /v1/embeddings: text as ids, and as vectors."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from chainrule.arrays import to_numpy
from chainrule.contract.lm import offered
from chainrule.errors import ModelError, TokenizerError
from chainrule.folder import TEXT
from chainrule.serve.api.answers import as_json, find_model, in_bulk
from chainrule.serve.api.schemas import DetokenizeRequest, EmbeddingRequest, MergesRequest, TokenizeRequest
from chainrule.serve.api.texts import check_prompt, prompt_tokens
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
    text = utf8(body.text)
    ids = tokenizer.encode(body.text).tolist()
    spans = text_spans(tokenizer, text, ids)
    begin = [tokenizer.bos] if body.add_special_tokens else []
    return as_json(
        {
            "tokens": begin + ids,
            "count": len(begin) + len(ids),
            "max_model_len": None,
            "token_strs": [tokenizer.token(token) for token in begin + ids],
            "spans": [[0, 0]] * len(begin) + [list(span) for span in spans],
            "bytes": len(text),
        }
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
    """Join tokens to a text."""
    tokenizer = tokenizer_of(find_model(request, body.model))
    if any(token >= tokenizer.vocab_size for token in body.tokens):
        raise TokenizerError(f"there is no such token: tokens are below {tokenizer.vocab_size}")
    text = tokenizer.decode(body.tokens)
    return as_json({"prompt": text, "content": text})


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request, model: str | None = None) -> Response:
    """Describe the tokenizer."""
    tokenizer = tokenizer_of(find_model(request, model))
    return as_json(
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
    steps = [
        {
            "left": readable(one.left),
            "right": readable(one.right),
            "rank": one.rank,
            "changed": [[number, [readable(token) for token in word]] for number, word in one.changed.items()],
        }
        for one in replay_merges(tokenizer, body.text)
    ]
    words = [[readable(byte) for byte in word] for word in spelled_words(body.text)]
    return as_json({"object": "merges", "model": served.name, "words": words, "steps": steps})


@router.post("/v1/embeddings")
async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts as vectors: the mean of the features from which a network predicts each next token."""
    served = find_model(request, body.model)
    lm = served.lm
    if offered(lm, "features") is None:
        raise ModelError(f"{served.name} has no vectors: embeddings come from networks")
    for text in body.texts:
        check_prompt(lm, text)
    rows = [prompt_tokens(lm, text) for text in body.texts]
    vectors = await in_bulk(request, served, "embed", rows, lambda ids: _mean_features(lm, ids))
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    count = sum(map(len, rows))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return as_json({"object": "list", "data": data, "model": served.name, "usage": usage})


def _mean_features(lm: Any, ids: list[int]) -> np.ndarray:
    """Return the mean of the features after each token, of length 1."""
    found = [] if ids else [to_numpy(lm.features(lm.start(1)))]
    for sequence in sequences(lm, ids):
        ids_BT = np.asarray([sequence], dtype=np.int64)
        _, features_BTD, after = lm.read_features(lm.start(1), ids_BT)
        found += [to_numpy(features_BTD)[0][1:], to_numpy(lm.features(after))]
    mean_D = np.concatenate([np.asarray(part, dtype=np.float64) for part in found]).mean(axis=0)
    return np.asarray(mean_D / max(float(np.linalg.norm(mean_D)), 1e-12))


def _encoded(vector: np.ndarray, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [round(float(value), 7) for value in vector]
