"""The same network twice, in torch and on the tape, with the same weights; and a text for both."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from chainrule.autodiff.networks.feedforward import TapeBagOfWords, TapeFeedforward
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import TapeQrnn, TapeRecurrent
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.networks.bag_of_words import BagOfWords
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.network import Network
from chainrule.networks.recurrent.qrnn import Qrnn
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer.decoder import Transformer
from chainrule.settings import closed, parse
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer

TOKENIZER = WordTokenizer([letter.encode() for letter in "abcdefgh"])
V = TOKENIZER.vocab_size
KINDS = ("feedforward", "bagofwords", "elman", "lstm", "gru", "qrnn", "transformer")
IN_TORCH: dict[str, type[Network]] = dict.fromkeys(KINDS, Recurrent) | {
    "qrnn": Qrnn,
    "feedforward": Feedforward,
    "bagofwords": BagOfWords,
    "transformer": Transformer,
}
ON_TAPE: dict[str, type[TapeNetwork]] = dict.fromkeys(KINDS, TapeRecurrent) | {
    "qrnn": TapeQrnn,
    "feedforward": TapeFeedforward,
    "bagofwords": TapeBagOfWords,
    "transformer": TapeTransformer,
}

DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "feedforward": ("feedforward", {"order": 4, "activation": "tanh"}),
    "bigram": ("feedforward", {"order": 2, "layers": 2, "tied": True}),
    "direct": ("feedforward", {"order": 3, "direct": True, "tied": True, "activation": "sigmoid"}),
    "without bias": ("feedforward", {"order": 3, "bias": False, "layers": 2, "activation": "leaky-relu"}),
    "bagofwords": ("bagofwords", {"window": 4, "slide": 0.5, "activation": "tanh"}),
    "endless bag": ("bagofwords", {"window": None, "layers": 1, "tied": True}),
    "elman": ("elman", {"layers": 1}),
    "relu elman": ("elman", {"layers": 3, "activation": "relu", "tied": False}),
    "sigmoid elman": ("elman", {"layers": 1, "activation": "sigmoid", "biases": 1, "orthogonal": False}),
    "leaky elman": ("elman", {"layers": 2, "activation": "leaky-relu"}),
    "lstm": ("lstm", {"layers": 2}),
    "one bias": ("lstm", {"layers": 2, "biases": 1}),
    "learned start": ("lstm", {"layers": 2, "learned_start": True, "tied": False}),
    "gru": ("gru", {"layers": 2, "last": 5}),
    "reset before": ("gru", {"layers": 2, "reset": "before"}),
    "lecture's gru": ("gru", {"layers": 1, "reset": "before", "biases": 1, "tied": False}),
    "qrnn": ("qrnn", {"layers": 2, "kernel": 2}),
    "wide qrnn": ("qrnn", {"layers": 1, "kernel": 4, "learned_start": True, "tied": False}),
    "transformer": ("transformer", {"preset": "fast", "kv_heads": 1, "zero_init": False}),
    "lecture's": ("transformer", {"preset": "lecture", "layers": 1}),
    "gpt2": ("transformer", {"preset": "gpt2"}),
    "llama": ("transformer", {"preset": "llama", "kv_heads": 2, "heads": 4}),
    "bert": ("transformer", {"preset": "bert"}),
    "no residual": ("transformer", {"residual": False}),
    "no residual, post": ("transformer", {"preset": "lecture", "residual": False}),
    "alibi": ("transformer", {"positions": "alibi", "heads": 3, "width": 6, "slide": 0.2}),
    "no positions": ("transformer", {"positions": "none", "placement": "post", "bias": True, "slide": 1.0}),
}
WINDOWED = [design for design, (kind, _) in DESIGNS.items() if kind == "transformer"]
"""The designs that keep no memory, and read what is in the window again."""
_SMALL_TRANSFORMER = {"width": 8, "heads": 2, "layers": 2, "hidden": 6, "window": 8}
SMALL = {kind: _SMALL_TRANSFORMER if kind == "transformer" else {"embedding": 4, "hidden": 6} for kind in KINDS}
NO_DROPOUT: dict[str, dict[str, float]] = {
    **{kind: {"dropout": 0.0} for kind in ("feedforward", "bagofwords", "transformer")},
    **{
        kind: {f"{where}_dropout": 0.0 for where in ("input", "hidden", "output")}
        for kind in ("elman", "lstm", "gru", "qrnn")
    },
}


def settings_of(design: str, **more: Any) -> Any:
    kind, values = DESIGNS[design]
    return closed(parse(find_kind(kind).settings, {**SMALL[kind], **values, **NO_DROPOUT[kind], **more}))


def twins(design: str, dtype: Any = np.float64, **more: Any) -> tuple[Network, TapeNetwork]:
    """Random weights, large enough to say something."""
    settings, kind = settings_of(design, **more), DESIGNS[design][0]
    torch.manual_seed(0)
    network = IN_TORCH[kind](settings, V, TOKENIZER.bos)
    network.to(getattr(torch, np.dtype(dtype).name)).train()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0, 0.4)
    tensors = {name: weight.detach().numpy().copy() for name, weight in network.named_parameters()}
    return network, ON_TAPE[kind](settings, V, TOKENIZER.bos, tensors)


def encoded(lines: int, seed: int) -> Encoded:
    """Lines of one to nine letters, each likely to be followed by the next of the alphabet."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(lines):
        steps = rng.choice([1, 2, 5], size=rng.integers(1, 10), p=[0.8, 0.15, 0.05])
        rows.append(np.append(3 + np.cumsum(steps) % 8, TOKENIZER.eos))
    ids = np.concatenate(rows).astype(np.uint16)
    return Encoded(ids, lines, 2 * len(ids), 0, hashlib.sha256(ids.tobytes()).hexdigest())


def data(**values: Any) -> TrainingData:
    return TrainingData(TOKENIZER, encoded(60, 0), values.pop("valid", encoded(20, 1)), **values)
