"""The tape beside torch on a CPU: `python -m benchmarks autodiff [options]`.

The lecture's feed-forward model (10,000 words, three of them as context, vectors of 64, 128 hidden units, 256
tokens a step) is trained with SGD and with Adam, an LSTM and a Transformer with Adam. Three sides in turns, each
with its whole step, from the batch to the new weights: the tape, the same training by chainrule's torch engine, and
a plain loop of torch modules. Then: the memory of the tape from step to step.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import Side, race, show
from chainrule.autodiff.networks.feedforward import TapeFeedforward
from chainrule.autodiff.networks.recurrent import TapeRecurrent
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.contract.kinds import TrainingData, find_kind
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer.decoder import Transformer
from chainrule.settings import closed, parse
from chainrule.system.devices import peak_memory
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.backends import Backend
from chainrule.training.backends.tape_backend import TapeBackend
from chainrule.training.backends.torch_backend import TorchBackend
from chainrule.training.batches.layouts import choose_layout
from chainrule.training.batches.rows import Size
from chainrule.training.engines.base import Engine, Feed
from chainrule.training.engines.tape_engine import TapeEngine
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.objectives import NextToken
from chainrule.training.run_state import Mode, Place

Work = Callable[[], object]
CLIP = 1.0


@dataclass(frozen=True)
class Task:
    """A network, how it is trained, and for how many steps at a time."""

    name: str
    kind: str
    settings: dict[str, Any]
    vocab_size: int
    steps: int

    @property
    def parsed(self) -> Any:
        return closed(parse(find_kind(self.kind).settings, {"clip": CLIP, "schedule": "constant", **self.settings}))

    def data(self) -> TrainingData:
        """Words as frequent as in a text: the n-th has a share of about 1/n (Zipf)."""
        tokenizer = WordTokenizer([str(number).encode() for number in range(self.vocab_size - 3)])
        share = 1 / np.arange(1, self.vocab_size - 2)
        words = np.random.default_rng(0).choice(len(share), 40 * self.settings["batch"], p=share / share.sum())
        ids = (words + 3).astype(np.uint16)
        encoded = Encoded(ids, 1, len(ids), 0, hashlib.sha256(ids.tobytes()).hexdigest())
        return TrainingData(tokenizer, encoded, None, context="stream")


FEEDFORWARD = {"order": 4, "embedding": 64, "hidden": 128, "activation": "tanh", "dropout": 0, "batch": 256}
LSTM = {
    "embedding": 64,
    "hidden": 128,
    "layers": 1,
    "tied": False,
    "batch": 1024,
    "length": 32,
    "optimiser": "adam",
}
LSTM |= {f"{where}_dropout": 0 for where in ("input", "hidden", "output")}
TRANSFORMER = {
    "preset": "gpt2",
    "optimiser": "adam",
    "layers": 2,
    "width": 128,
    "heads": 4,
    "window": 64,
    "tied": False,
    "dropout": 0,
    "batch": 1024,
    "length": 64,
}


def tasks(small: bool) -> list[Task]:
    size, steps = (50, 2) if small else (10_000, 40)
    smaller = {"embedding": 4, "hidden": 6, "batch": 16, "length": 4} if small else {}
    few = {"width": 8, "window": 4, "batch": 16, "length": 4} if small else {}
    return [
        Task("feed-forward, SGD", "feedforward", {**FEEDFORWARD, "optimiser": "sgd", **smaller}, size, steps),
        Task("feed-forward, Adam", "feedforward", {**FEEDFORWARD, "optimiser": "adam", **smaller}, size, steps),
        Task("LSTM, Adam", "lstm", {**LSTM, "optimiser": "adam", **smaller}, size, max(steps // 4, 2)),
        Task(
            "Transformer, Adam",
            "transformer",
            {**TRANSFORMER, "optimiser": "adam", **few},
            size,
            max(steps // 8, 2),
        ),
    ]


# -- the sides --------------------------------------------------------------------------------------------

ON_TAPE = {"feedforward": TapeFeedforward, "lstm": TapeRecurrent, "transformer": TapeTransformer}
IN_TORCH = {"feedforward": Feedforward, "lstm": Recurrent, "transformer": Transformer}


def tape(task: Task) -> tuple[Work, TapeEngine, Feed]:
    """Steps of the tape."""
    work, engine, text = _steps(task, TapeBackend(task.kind, ON_TAPE[task.kind]))
    assert isinstance(engine, TapeEngine)
    return work, engine, text


def same_loop(task: Task) -> tuple[Work, TorchEngine, Feed]:
    """The same steps by chainrule's torch engine."""
    work, engine, text = _steps(task, TorchBackend(task.kind, IN_TORCH[task.kind]))
    assert isinstance(engine, TorchEngine)
    return work, engine, text


def _steps(task: Task, backend: Backend) -> tuple[Work, Engine, Feed]:
    """Steps of one of chainrule's engines, and the text that they read."""
    settings, data = task.parsed, task.data()
    lm = backend.build(settings, data)
    engine = backend.engine(lm, settings, data)
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
    """Steps of torch modules in a loop as people write it."""
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
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks autodiff",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=2, help="of both sides [2]")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side [5]")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    options = parser.parse_args(arguments)
    threads = str(options.threads)
    if os.environ.get("OMP_NUM_THREADS") != threads:
        # the threads of matrix products are counted when NumPy is imported: another process counts again
        command = [sys.executable, "-m", "benchmarks", "autodiff", *arguments]
        raise SystemExit(
            subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": threads}, check=False).returncode
        )
    torch.set_num_threads(options.threads)
    memory = [_raced(task, options.rounds) for task in tasks(options.small)]
    headings = ["the tape, steps", "kept to be used again", "the process grew by"]
    show(f"memory, {threads} threads", headings, memory)


def _raced(task: Task, rounds: int) -> list[str]:
    """Time all sides; then what the tape holds after many steps, and by how much that made the process larger."""
    ours, engine, _ = tape(task)
    tokens = task.steps * task.settings["batch"]
    sides = [
        Side("chainrule, tape", ours, tokens),
        Side("chainrule, torch", same_loop(task)[0], tokens),
        Side("torch, a plain loop", plain_loop(task), tokens),
    ]
    race(f"training, {task.name}", "tokens", sides, rounds)
    held, before = engine.tape.bytes_held, peak_memory()
    for _ in range(3):
        ours()
    grown = peak_memory() - before
    assert engine.tape.bytes_held == held, "the tape keeps more at each step"
    return [f"{task.name}, {3 * task.steps} more", f"{held / 1e6:,.1f} MB", f"{grown / 1e6:,.1f} MB"]
