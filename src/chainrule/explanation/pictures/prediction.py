"""One prediction computed as the lectures draw it: token by token, one vector each, every gate a module of its own.

A Transformer is drawn as it computes, all tokens at once (transformer.py).

`network.loss` computes the same loss for batches, with as few modules as it can; tests check that both agree.
Parameters have the lecture's letters here: E embeds a token, W and b are applied to that embedding, U and d to the
previous state, O and c give the logits (in a network that is not recurrent U and c). They are copies in double
precision, without the padding rows of the tables; <s>, which is never predicted, has the bias -∞. The primes and
superscripts of letters are layers.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from chainrule.autodiff.networks.bag_of_words import TapeBagOfWords
from chainrule.autodiff.networks.cells import CellState, find_cell
from chainrule.autodiff.networks.feedforward import TapeFeedforward
from chainrule.autodiff.networks.hidden import ACTIVATIONS
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import LAYER, TapeRecurrent
from chainrule.autodiff.networks.transformer.decoder import TapeTransformer
from chainrule.autodiff.tape.losses import SoftmaxCrossEntropy
from chainrule.autodiff.tape.modules import Add, Embedding, Linear, Scale, Sigmoid, Sum, Tanh
from chainrule.autodiff.tape.moves import Concat, Stack
from chainrule.autodiff.tape.nodes import Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module, current_tape
from chainrule.explanation.pictures.equations import subscript
from chainrule.explanation.pictures.transformer import last_features, parameter_letter
from chainrule.networks.config import PARTS, BagOfWordsConfig, FeedforwardConfig
from chainrule.networks.memory import RecurrentMemory, Sums

_GATES: dict[str, dict[type[Module], str]] = {
    "elman": {},
    "lstm": {Sigmoid: "ifo", Tanh: "g"},
    "gru": {Sigmoid: "rz", Tanh: "n"},
}
"""The lecture's letters for the gates of each cell: for each type of module, in the order they are applied."""

_Named = TypeVar("_Named", bound=Node)


class Prediction:
    """-ln p(target | ids), recorded on the current tape, and the lecture's symbols for its nodes."""

    def __init__(
        self,
        network: TapeNetwork,
        ids: Sequence[int],
        target: int,
        word: Callable[[int], str],
        memory: RecurrentMemory | Sums | None = None,
    ) -> None:
        """Compute the loss of the target after the ids, which follow `memory`, or the initial state without one.

        `memory` is that of a recurrent network or a bag of words, for a batch of one row. `word` gives the text of
        a token.
        """
        self.symbols: dict[Node, str] = {}
        self._network, self._word = network, word
        self.parameters: dict[str, Parameter] = {}
        if isinstance(network, TapeFeedforward):
            features = self._feedforward(network, ids)
        elif isinstance(network, TapeBagOfWords):
            assert not isinstance(memory, RecurrentMemory)
            features = self._bag_of_words(network, ids, memory)
        elif isinstance(network, TapeTransformer):
            features = self._transformer(network, ids)
        else:
            assert isinstance(network, TapeRecurrent) and not isinstance(memory, Sums)
            features = self._recurrent(network, ids, memory)
        y = self._named("y", Value(np.int64(target), word(target)))
        self.logits = self._named("z", self._head(features))
        self.loss = SoftmaxCrossEntropy().apply_fwd(self.logits, y)

    def _feedforward(self, network: TapeFeedforward, ids: Sequence[int]) -> Node:
        config = network.config
        last = [*network.begin(1).ids_BS[0], *ids][-(config.order - 1) :]
        # x = [E x_1; ...; E x_{n-1}]
        x = Concat().apply_fwd(*(self._embed(token, place) for place, token in enumerate(last, 1)))
        h = self._hidden(config, self._named("x", x))
        return Concat().apply_fwd(h, x) if config.direct else h

    def _bag_of_words(self, network: TapeBagOfWords, ids: Sequence[int], memory: Sums | None) -> Node:
        vectors: list[Node] = [self._embed(token, place) for place, token in enumerate(ids, 1)]
        count = len(ids)
        if memory is not None:
            vectors.insert(
                0, self._named("s" + subscript(0), Value(memory.sum_BD[0].astype(np.float64), "sum before"))
            )
            count += int(memory.count_B[0])
        # m = 1/t Σ_i E x_i, where s_0 is the sum of the vectors before
        s = self._named("s", Sum(axis=0).apply_fwd(Stack(axis=0).apply_fwd(*vectors)))
        return self._hidden(network.config, self._named("m", Scale(1 / count).apply_fwd(s)))

    def _transformer(self, network: TapeTransformer, ids: Sequence[int]) -> Node:
        drawn = copy.copy(network)
        drawn.parameters = {name: self._parameter(parameter_letter(name), name) for name in network.parameters}
        words = [self._word(token) for token in ids]
        shown = words if len(words) <= 4 else (words[0], "…", words[-1])
        features, symbols = last_features(drawn, ids, " ".join(shown))
        self.symbols |= symbols
        return features

    def _hidden(self, config: BagOfWordsConfig | FeedforwardConfig, x: Module) -> Module:
        h = x
        for i in range(config.layers):
            layer = subscript(i + 1) if config.layers > 1 else ""
            W, b = (
                self._parameter(letter + layer, f"hidden.linears.{i}.{name}")
                for letter, name in (("W", "weight"), ("b", "bias"))
            )
            # h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)
            new: Module = ACTIVATIONS[config.activation]().apply_fwd(Linear().apply_fwd(h, W, b))
            h = self._named("h" + layer, Add().apply_fwd(h, new) if i else new)
        return h

    def _recurrent(self, network: TapeRecurrent, ids: Sequence[int], memory: RecurrentMemory | None) -> Node:
        states = [self._before(network, i, memory) for i in range(network.config.layers)]
        for t, token in enumerate(ids, 1):
            x: Node = self._embed(token, t)
            for i, state in enumerate(states):
                states[i] = self._step(network, i, x, state, t)
                x = states[i][0]
        return x

    def _step(self, network: TapeRecurrent, i: int, x: Node, state: CellState, t: int) -> CellState:
        layer = "′" * i  # primes distinguish the letters of several layers
        W, U, b, d = (
            self._parameter(letter + layer, LAYER.format(i, name))
            for letter, name in zip("WUbd", ("weight_ih", "weight_hh", "bias_ih", "bias_hh"), strict=True)
        )
        Wx, Uh = Linear().apply_fwd(x, W, b), Linear().apply_fwd(state[0], U, d)
        before = len(current_tape())
        # h_t = cell(x_t, h_{t-1})
        after = find_cell(network.config.cell, network.config.activation)(Wx, Uh, state)
        letters = _GATES[network.config.cell]
        seen: Counter[type[Module]] = Counter()
        for module in current_tape().modules[before:]:
            kind = type(module)
            if seen[kind] < len(letters.get(kind, "")):
                self._named(letters[kind][seen[kind]] + layer + subscript(t), module)
            seen[kind] += 1
        for letter, part in zip("hc", after, strict=False):
            self._named(letter + layer + subscript(t), part)
        return after

    def _before(self, network: TapeRecurrent, i: int, memory: RecurrentMemory | None) -> CellState:
        """The state of layer i before the first token: data (`memory` or zeros), or a learned start."""
        symbols = [letter + "′" * i + subscript(0) for letter in "hc"[: PARTS[network.config.cell]]]
        if memory is None and network.config.learned_start:
            return tuple(self._parameter(symbol, f"starts.{i}", n) for n, symbol in enumerate(symbols))
        name = "zeros" if memory is None else "what was read"
        state = (network.begin(1) if memory is None else memory).states[i]
        return tuple(
            self._named(symbol, Value(part_BH[0].astype(np.float64), name))
            for symbol, part_BH in zip(symbols, state, strict=True)
        )

    def _embed(self, token: int, place: int) -> Module:
        x = self._named("x" + subscript(place), Value(np.int64(token), self._word(token)))
        e: Module = Embedding().apply_fwd(self._parameter("E", "embedding.weight"), x)
        if self._network.scale != 1:
            e = Scale(self._network.scale).apply_fwd(e)
        return self._named("e" + subscript(place), e)

    def _head(self, features: Node) -> Module:
        network = self._network
        if "projection.weight" in network.parameters:
            features = Linear().apply_fwd(features, self._parameter("P", "projection.weight"))
        if network.tied:
            table = self._parameter("E", network.table.name)
        else:
            table = self._parameter("O" if isinstance(network, TapeRecurrent) else "U", "head.weight")
        if "head.bias" in network.parameters:
            return Linear().apply_fwd(features, table, self._parameter("c", "head.bias"))
        never_V = np.where(np.arange(network.vocab_size) == network.bos, -np.inf, 0.0)
        return Linear().apply_fwd(features, table, self._named("c", Value(never_V, "-∞ for <s>")))

    def _parameter(self, letter: str, name: str, row: int | None = None) -> Parameter:
        """The network's parameter of that name, or a row of it, under the lecture's letter."""
        key = name if row is None else f"{name}.{row}"
        if key not in self.parameters:
            tensor = self._network.parameters[name].out_tensor.astype(np.float64)
            if name in (self._network.table.name, "head.weight", "head.bias"):
                tensor = tensor[: self._network.vocab_size]
            if name == "head.bias":
                tensor[self._network.bos] = -np.inf
            self.parameters[key] = Parameter(letter, tensor if row is None else tensor[row])
        return self.parameters[key]

    def _named(self, symbol: str, node: _Named) -> _Named:
        self.symbols[node] = symbol
        return node
