"""Scoring text that is there: one long stream, and lines, by every family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import chainrule as cr
from benchmarks.decode.models import random_model
from benchmarks.decode.peers import Task, Write, causal_model, has_peer, precision
from benchmarks.decode.results import Results
from chainrule.networks.transformer.config import TransformerConfig

WORDS_OF_LINE = 22  # as many as a line of news has


def scoring(results: Results) -> None:
    """Measure a Transformer, an LSTM and a bag of words on one stream, and then every family on lines."""
    lab = results.lab
    vocab_size = lab.pick(16_000, 96)
    blocks = {"preset": "gpt2", **lab.pick(_blocks(8, 512, 8, 1024), _blocks(2, 32, 4, 64))}
    wide = lab.pick({"layers": 2, "hidden": 1024, "embedding": 1024}, {"hidden": 16, "embedding": 16})
    peers = _transformers(results, blocks, vocab_size)
    designs: dict[str, tuple[str, dict[str, Any]]] = {
        "Transformer": ("transformer", blocks),
        "LSTM": ("lstm", wide),
        "bag of words": ("bagofwords", lab.pick({}, {"hidden": 16, "embedding": 16})),
    }
    for name, (kind, settings) in designs.items():
        text = _text(vocab_size, lab.pick(1 << 18 if kind == "transformer" else 1 << 16, 200), lines=False)
        lm = random_model(kind, vocab_size, settings, device=lab.device, dtype=precision(lab))
        peer = peers if kind == "transformer" else {}
        results.measure("scoring", f"{name}, a stream", partial(_ours, lm, text), peer)
    text = _text(vocab_size, lab.pick(1 << 17, 200), lines=True)
    size = lab.pick({}, {"hidden": 16, "embedding": 16})
    small = {"preset": "fast", **lab.pick(_blocks(4, 256, 4, 256), _blocks(1, 16, 2, 64))}
    for kind in ("bagofwords", "gru", "lstm", "elman", "feedforward", "qrnn", "transformer"):
        own = small if kind == "transformer" else size
        lm = random_model(kind, vocab_size, own, context="line", device=lab.device, dtype=precision(lab))
        results.measure("scoring", f"{kind}, lines", partial(_ours, lm, text))


def _blocks(layers: int, width: int, heads: int, window: int) -> dict[str, int]:
    return {"layers": layers, "width": width, "heads": heads, "window": window}


def _text(vocab_size: int, words: int, *, lines: bool) -> str:
    """Return words at random, few of which are frequent, on one line or on lines of the usual length."""
    ids = np.random.default_rng(0).zipf(1.2, words) % (vocab_size - 3)
    spelled = [f"w{number}" for number in ids.tolist()]
    width = WORDS_OF_LINE if lines else words
    return "\n".join(" ".join(spelled[i : i + width]) for i in range(0, words, width)) + "\n"


def _ours(lm: cr.LanguageModel, text: str) -> Write:
    return lambda: len(lm.surprisals(text))


def _transformers(results: Results, blocks: dict[str, Any], vocab_size: int) -> dict[str, Callable[[], Write]]:
    """Return the side of transformers: the loss of one window after the other, without what came before."""
    if not has_peer("transformers", "transformers"):
        return {}
    lab = results.lab
    config = TransformerConfig(**blocks)
    task = Task("scoring", config, vocab_size, lab.pick(16, 2), 0)

    def make() -> Write:
        model = causal_model(lab, task)
        ids_BT = torch.randint(3, vocab_size, (task.rows, config.window), device=lab.device)

        @torch.inference_mode()
        def score() -> int:
            logits_BTV = model(ids_BT[:, :-1]).logits.float()
            float(torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), ids_BT[:, 1:].flatten()))
            return ids_BT.numel()

        return score

    return {"transformers": make}
