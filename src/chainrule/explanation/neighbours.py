"""`neighbours`: the tokens whose vectors in a network's embedding table are most alike, by cosine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chainrule.arrays import refuse_nan
from chainrule.contract.model import Model
from chainrule.errors import DiagnosisError
from chainrule.explanation.reading import one_token
from chainrule.folder import TEXT
from chainrule.system.devices import has_torch
from chainrule.tokens.base import Tokenizer

TOP = 10


class Neighbour(NamedTuple):
    """A token near another one."""

    id: int
    token: str
    similarity: float
    """The cosine of the angle between the two vectors."""


def table_of(model: Model) -> np.ndarray:
    """Return the vectors of all tokens, [V, D]: by a model's `token_vectors()`, or of a torch network.

    A model without a table is refused.
    """
    if hasattr(model, "token_vectors"):
        return np.asarray(model.token_vectors())
    if has_torch():
        from chainrule.inference.torch_model import TorchModel

        if isinstance(model, TorchModel) and hasattr(model.network, "table"):
            # a masked model has a row for [MASK] after those of the tokens, others may have rows of padding
            weight = model.network.table().weight_VD.detach()[: model.tokenizers[TEXT].vocab_size]
            return np.asarray(weight.float().cpu().numpy())
    raise DiagnosisError(
        f"a model of the kind {model.kind} has no embedding table, so its tokens have no neighbours; networks have"
    )


def neighbours(model: Model, text: str, top: int = TOP) -> tuple[Neighbour, list[Neighbour]]:
    """Return the token of a text, and the `top` tokens nearest to it, the nearest first.

    The text is one token, or one after a space, as subword tokenizers have words inside a text.
    """
    table_VD = table_of(model)
    refuse_nan(table_VD)
    tokenizer = model.tokenizers[TEXT]
    token = _token(tokenizer, text)
    norms_V = np.linalg.norm(table_VD, axis=1)
    # cos(a, b) = a·b / (|a| |b|)
    cosines_V = table_VD @ table_VD[token] / np.maximum(norms_V * norms_V[token], 1e-12)
    order = np.argsort(-cosines_V, kind="stable")
    nearest = [int(i) for i in order[: top + 1] if i != token][:top]
    found = [Neighbour(i, tokenizer.token(i), float(cosines_V[i])) for i in nearest]
    return Neighbour(token, tokenizer.token(token), 1.0), found


def _token(tokenizer: Tokenizer, text: str) -> int:
    """Return the id of a text that is one token; one that the tokenizer does not know is refused."""
    after_space = tokenizer.encode(f" {text}").tolist()
    if len(tokenizer.encode(text)) != 1 and len(after_space) == 1:
        token = int(after_space[0])
    else:
        token = one_token(tokenizer, text, "token")
    if token == tokenizer.unk and text != tokenizer.token(token):
        raise DiagnosisError(f"{text!r} is unknown to the model: it has no vector of its own")
    return token
