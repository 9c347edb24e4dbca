"""Three LSTM layers on WikiText-2: tokens per second of training, beside nn.LSTM in a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import recipes
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import show
from benchmarks.neural.lab import Lab, Texts, ratio
from chainrule.contract.kinds import find_kind
from chainrule.settings import closed, parse
from chainrule.text.corpus import Corpus
from chainrule.tokens.registry import train_tokenizer

ROWS, LENGTH = 80, 70
"""The streams in a step of AWD-LSTM, and the tokens of each."""

States = list[tuple[Tensor, Tensor]]


class PlainLSTM(nn.Module):
    """Layers of nn.LSTM, with one table for the embedding and the head."""

    def __init__(self, vocab_size: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        widths = [embedding, *[hidden] * (layers - 1), embedding]
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.layers = nn.ModuleList(nn.LSTM(a, b) for a, b in pairwise(widths))
        self.head = nn.Linear(embedding, vocab_size)
        self.head.weight = self.embedding.weight

    def forward(self, inputs_TB: Tensor, targets_TB: Tensor, states: States | None) -> tuple[Tensor, States]:
        """Return the mean loss, and the states after the text."""
        x_TBD, after = self.embedding(inputs_TB), []
        for number, layer in enumerate(self.layers):
            x_TBD, state = layer(x_TBD, None if states is None else states[number])
            after.append(tuple(part.detach() for part in state))
        return F.cross_entropy(self.head(x_TBD).flatten(0, 1), targets_TB.flatten()), after


def run(lab: Lab) -> None:
    recipe = recipes.find("wikitext2_lstm")
    corpus, valid = Corpus.open(lab.text(recipe.train)), Corpus.open(lab.text(str(recipe.valid)))
    texts = lab.encode(train_tokenizer("word", corpus), corpus, valid)
    settings = {key: value for key, value in recipe.settings.items() if key != "minutes"}
    settings |= {"batch": ROWS * LENGTH, "length": LENGTH, "steps": lab.pick(2000, 4), "validate_every": 2000}
    settings |= lab.pick({}, {"embedding": 8, "hidden": 16, "batch": 32, "length": 8})
    chosen = closed(parse(find_kind("lstm").settings, {**settings, **lab.settings}))
    plain = {name: 0 for name in settings if name.endswith("dropout") or name in ("alpha", "beta")}
    rates = {
        "chainrule": lab.train("lstm", texts, {**settings, **plain}).rate,
        "chainrule, with the recipe's dropout": lab.train("lstm", texts, settings).rate,
    }
    for autocast in (False, True):
        name = "products" if autocast else "all"
        rates[f"nn.LSTM, {name} in bfloat16"] = _rate(lab, texts, chosen, autocast)
    theirs = max(rate for name, rate in rates.items() if name.startswith("nn.LSTM"))
    rows = [
        [name, f"{rate:,.0f}", ratio(rate, theirs if name.startswith("chainrule") else None)]
        for name, rate in rates.items()
    ]
    show(f"training, {chosen.batch:,} tokens a step", ["side", "tokens/s", "ours is"], rows)


def _rate(lab: Lab, texts: Texts, chosen: Any, autocast: bool) -> float:
    """Return tokens per second of the plain loop."""
    torch.manual_seed(0)
    model = PlainLSTM(texts.tokenizer.vocab_size, chosen.embedding, chosen.hidden, chosen.layers)
    model.to(lab.device, torch.float32 if autocast or lab.small else torch.bfloat16)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batches = _batches(lab, texts.train.ids, chosen.batch // chosen.length, chosen.length)
    states: States | None = None

    def steps(count: int) -> None:
        nonlocal states
        for _ in range(count):
            with lab.autocast() if autocast else nullcontext():
                loss, states = model(*next(batches), states)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    steps(lab.pick(20, 1))
    timed = lab.pick(200, 2)
    return float(chosen.batch * timed / lab.seconds(lambda: steps(timed)))


def _batches(lab: Lab, ids: np.ndarray, rows: int, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pieces of as many streams as there are rows, epoch after epoch."""
    every = torch.from_numpy(np.asarray(ids, np.int64)).to(lab.device)
    streams_TB = every[: len(every) // rows * rows].view(rows, -1).T.contiguous()
    while True:
        for first in range(0, len(streams_TB) - length, length):
            yield streams_TB[first : first + length], streams_TB[first + 1 : first + 1 + length]
