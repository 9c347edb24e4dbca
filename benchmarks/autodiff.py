"""The tape beside torch on a CPU: `python -m benchmarks autodiff [options]`.

The lecture's feed-forward model (10,000 words, three of them as context, vectors of 64, 128 hidden units, 256
tokens a step) is trained with SGD and with Adam, an LSTM and a Transformer with Adam. Three sides take turns, each
with whole steps from the batch to the new weights: the tape, the same training by chainrule's torch engine, and a
plain loop of torch modules. A last table has the memory of the tape from step to step.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import Side, new_parser, race, show
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.settings import closed, parse
from chainrule.system.devices import peak_memory
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.kinds import NetworkKind
from chainrule.training.layouts import Size, choose_layout
from chainrule.training.objectives import Feed, NextToken
from chainrule.training.run_state import Mode, Place

Work = Callable[[], object]
CLIP = 1.0


@dataclass(frozen=True)
class Task:
    """A network, its settings, and the number of steps in a round."""

    name: str
    kind: str
    settings: dict[str, Any]
    vocab_size: int
    steps: int

    @property
    def parsed(self) -> Any:
        return closed(parse(find_kind(self.kind).settings, {"clip": CLIP, "schedule": "constant", **self.settings}))

    def data(self) -> TrainingData:
        """Return random words with frequencies as in a text: the n-th word has a share of about 1/n (Zipf)."""
        tokenizer = WordTokenizer([str(number).encode() for number in range(self.vocab_size - 3)])
        share = 1 / np.arange(1, self.vocab_size - 2)
        words = np.random.default_rng(0).choice(len(share), 40 * self.settings["batch"], p=share / share.sum())
        ids = (words + 3).astype(np.uint16)
        encoded = Encoded(ids, 1, len(ids), 0, hashlib.sha256(ids.tobytes()).hexdigest())
        return TrainingData(tokenizer, encoded, None, context="stream")


FEEDFORWARD = {"order": 4, "embedding": 64, "hidden": 128, "activation": "tanh", "dropout": 0, "batch": 256}
LSTM = {"embedding": 64, "hidden": 128, "layers": 1, "tied": False, "batch": 1024, "length": 32}
LSTM |= {f"{where}_dropout": 0 for where in ("input", "hidden", "output")}
TRANSFORMER = {"preset": "gpt2", "layers": 2, "width": 128, "heads": 4, "window": 64, "tied": False}
TRANSFORMER |= {"dropout": 0, "batch": 1024, "length": 64}


def tasks(small: bool) -> list[Task]:
    size, steps = (50, 2) if small else (10_000, 40)
    adam = {"optimiser": "adam"}
    smaller = {"embedding": 4, "hidden": 6, "batch": 16, "length": 4} if small else {}
    few = {"width": 8, "window": 4, "batch": 16, "length": 4} if small else {}
    return [
        Task("feed-forward, SGD", "feedforward", {**FEEDFORWARD, "optimiser": "sgd", **smaller}, size, steps),
        Task("feed-forward, Adam", "feedforward", {**FEEDFORWARD, **adam, **smaller}, size, steps),
        Task("LSTM, Adam", "lstm", {**LSTM, **adam, **smaller}, size, max(steps // 4, 2)),
        Task("Transformer, Adam", "transformer", {**TRANSFORMER, **adam, **few}, size, max(steps // 8, 2)),
    ]


# -- the sides --------------------------------------------------------------------------------------------


def engine_steps(task: Task, framework: str) -> tuple[Work, Any, Feed]:
    """Return a round of steps by one of chainrule's engines, the engine, and the text that the steps read."""
    settings, data = replace(task.parsed, engine=framework), task.data()
    kind: NetworkKind = find_kind(task.kind).train.__self__  # type: ignore[attr-defined]
    engine = kind.build(settings, data)
    size = Size(settings.row_length(engine.window, data.context), settings.batch, settings.batch)
    layout = choose_layout(data.train.ids, data.tokenizer.eos, data.context, engine.window, size, 0)
    text = Feed(layout, engine.gatherer(data.train.ids, NextToken.of(data.tokenizer, data.context)))
    epoch = layout.epoch(0)
    engine.start(Mode())

    def work() -> None:
        engine.forget()
        for number in range(task.steps):
            engine.take_step(text, epoch[number % (len(epoch) - 1)], 0.1, Place(number + 1, 0, number))
        engine.read_figures()

    return work, engine, text


class PlainFeedforward(nn.Module):
    """E, W and U, with three words as context."""

    def __init__(self, vocab_size: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.E, self.W = nn.Embedding(vocab_size, embedding), nn.Linear(3 * embedding, hidden)
        self.U = nn.Linear(hidden, vocab_size)

    def forward(self, ids_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        contexts = F.pad(ids_BT, (2, 0), value=1).unfold(1, 3, 1).flatten(0, 1)
        return self.U(torch.tanh(self.W(self.E(contexts).flatten(1)))), None


class PlainLSTM(nn.Module):
    """nn.LSTM between two tables."""

    def __init__(self, vocab_size: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.E, self.lstm = nn.Embedding(vocab_size, embedding), nn.LSTM(embedding, hidden, batch_first=True)
        self.U = nn.Linear(hidden, vocab_size)

    def forward(self, ids_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        out_BTH, state = self.lstm(self.E(ids_BT), state)
        return self.U(out_BTH).flatten(0, 1), tuple(part.detach() for part in state)


class PlainTransformer(nn.Module):
    """nn.TransformerEncoder with a causal mask between two tables, and learned positions: GPT-2's design."""

    def __init__(self, vocab_size: int, width: int, heads: int, layers: int, window: int) -> None:
        super().__init__()
        self.E, self.P = nn.Embedding(vocab_size, width), nn.Embedding(window, width)
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.U = nn.Linear(width, vocab_size, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(window))

    def forward(self, ids_BT: Tensor, state: Any) -> tuple[Tensor, Any]:
        x_BTD = self.E(ids_BT) + self.P.weight[: ids_BT.shape[1]]
        return self.U(self.blocks(x_BTD, mask=self.mask, is_causal=True)).flatten(0, 1), None


def plain_network(task: Task) -> nn.Module:
    values = task.settings
    if task.kind == "transformer":
        sizes = (values[name] for name in ("width", "heads", "layers", "window"))
        return PlainTransformer(task.vocab_size, *sizes)
    kind = PlainFeedforward if task.kind == "feedforward" else PlainLSTM
    return kind(task.vocab_size, values["embedding"], values["hidden"])


def plain_loop(task: Task) -> Work:
    """Return a round of steps of torch modules in a usual training loop."""
    values, network = task.settings, plain_network(task)
    make: Any = torch.optim.SGD if values["optimiser"] == "sgd" else torch.optim.Adam
    optimiser = make(network.parameters(), lr=1e-3, fused=True)
    length = values.get("length", 64)
    ids = torch.from_numpy(np.asarray(task.data().train.ids, np.int64))
    rows = max(values["batch"] // length, 1)
    streams_BT = ids[: len(ids) // rows * rows].view(rows, -1)

    def work() -> None:
        state = None
        for number in range(task.steps):
            first = number * length % (streams_BT.shape[1] - length - 1)
            inputs, targets = streams_BT[:, first : first + length], streams_BT[:, first + 1 : first + 1 + length]
            logits, state = network(inputs, state)
            F.cross_entropy(logits, targets.flatten()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    return work


# -- the benchmark ----------------------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    parser = new_parser("autodiff", __doc__)
    parser.add_argument("--threads", type=int, default=2, help="of both sides [2]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side [5]")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    options = parser.parse_args(arguments)
    threads = str(options.threads)
    if os.environ.get("OMP_NUM_THREADS") != threads:
        # NumPy sets the number of threads when it is imported: a new process sets it again
        command = [sys.executable, "-m", "benchmarks", "autodiff", *arguments]
        raise SystemExit(
            subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": threads}, check=False).returncode
        )
    torch.set_num_threads(options.threads)
    memory = [_raced(task, options.rounds) for task in tasks(options.small)]
    headings = ["the tape, steps", "kept to be used again", "the process grew by"]
    show(f"memory, {threads} threads", headings, memory)


def _raced(task: Task, rounds: int) -> list[str]:
    """Time all sides; return the memory that the tape holds after more steps, and the growth of the process."""
    ours, engine, _ = engine_steps(task, "tape")
    tokens = task.steps * task.settings["batch"]
    sides = [
        Side("chainrule, tape", ours, tokens),
        Side("chainrule, torch", engine_steps(task, "torch")[0], tokens),
        Side("torch, a plain loop", plain_loop(task), tokens),
    ]
    race(f"training, {task.name}", "tokens", sides, rounds)
    held, before = engine.tape.bytes_held, peak_memory()
    for _ in range(3):
        ours()
    grown = peak_memory() - before
    assert engine.tape.bytes_held == held, "the tape keeps more at each step"
    return [f"{task.name}, {3 * task.steps} more", f"{held / 1e6:,.1f} MB", f"{grown / 1e6:,.1f} MB"]
