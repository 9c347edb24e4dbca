"""Models of every family with random weights: how fast a model writes does not depend on what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from chainrule.contract.kinds import find_kind
from chainrule.contract.lm import Context
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.bag_of_words import BagOfWords
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.recurrent.qrnn import Qrnn
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer.decoder import Transformer
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel, make_network
from chainrule.settings import closed, parse
from chainrule.tokens.words.tokenizer import WordTokenizer

NETWORKS: dict[str, Any] = {
    "transformer": Transformer,
    "lstm": Recurrent,
    "gru": Recurrent,
    "elman": Recurrent,
    "qrnn": Qrnn,
    "feedforward": Feedforward,
    "bagofwords": BagOfWords,
}


def some_words(vocab_size: int) -> WordTokenizer:
    """Return the tokenizer of the words w0, w1, and so on, with this many tokens."""
    return WordTokenizer([f"w{number}".encode() for number in range(vocab_size - 3)])


def random_model(
    kind: str,
    vocab_size: int,
    settings: Mapping[str, Any],
    *,
    context: Context = "stream",
    device: str = "cpu",
    dtype: str = "float32",
    spread: float | None = None,
) -> NeuralModel:
    """Return a network with random weights, the same ones every time.

    With a `spread`, that is how much the logits differ from each other: those of a new network hardly do.
    """
    chosen: Any = closed(parse(find_kind(kind).settings, dict(settings)))
    chosen = chosen.with_engine("torch")  # as a trained network is stored
    tokenizer = some_words(vocab_size)
    sizes = tokenizer.vocab_size, tokenizer.bos
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        if kind == "seq2seq":
            network = make_network(chosen, *sizes, vocab_size, shares=chosen.shared)
            lm: NeuralModel = EncoderDecoderModel(network, tokenizer, tokenizer, kind=kind, settings=chosen)
        else:
            slide = getattr(chosen, "slide_share", 0.5)
            network = NETWORKS[kind](chosen, *sizes)
            lm = NeuralModel(network, tokenizer, context, kind=kind, settings=chosen, slide=slide)
        if spread is not None:
            _spread(lm, spread)
    return lm.on(device, dtype)


@torch.no_grad()
def _spread(lm: NeuralModel, spread: float) -> None:
    """Give the weights values at random, and scale the head so that logits have about this standard deviation."""
    for weight in lm.network.parameters():
        weight.normal_(std=0.3 if weight.ndim < 2 else weight.shape[-1] ** -0.5)
    ids_BT = torch.arange(lm.tokenizer.vocab_size, device=lm.device)[None, 3:35]
    start = lm.begin([[3, 4, 5]]) if isinstance(lm, EncoderDecoderModel) else lm.start(1)
    lm.network.head.weight.mul_(spread / lm.next_logits(lm.extend(start, ids_BT))[:, 3:].std())
