"""One prediction computed as the lectures draw it: token by token, one vector each, every gate a module of its own.

A Transformer is drawn as it computes, all tokens at once, with a row of each matrix for a token; so is a network
that has no drawing of its own here.

`network.loss` computes the same loss for batches, with as few modules as it can; tests check that both agree.
Parameters have the lecture's letters here: E embeds a token, W and b are applied to that embedding, U and d to the
previous state, O and c give the logits (in a network that is not recurrent U and c). They are copies in double
precision, without the padding rows of the tables; <s>, which is never predicted, has the bias -∞. The primes and
superscripts of letters are layers. The letters of a Transformer:

    x              the ids of the tokens
    e, P           their embeddings, and the positions that are added to them
    h⁰, h¹, ...    the features before the first block, after it, ...
    q, k, v        queries, keys and values of each head
    A              the weighted mean of the values, for each head
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial, singledispatchmethod
from typing import Any, TypeVar

import numpy as np

from chainrule.autodiff.networks.cells import ACTIVATIONS, CellState, find_cell, qrnn
from chainrule.autodiff.networks.feedforward import TapeBagOfWords, TapeFeedforward
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.recurrent import LAYER, QRNN_LAYER, TapeQrnn, TapeRecurrent
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape.attention import ScaledDotProductAttention, SplitHeads
from chainrule.autodiff.tape.losses import SoftmaxCrossEntropy
from chainrule.autodiff.tape.modules import Add, Embedding, Linear, Scale, Sum
from chainrule.autodiff.tape.moves import Concat, Slice, Stack
from chainrule.autodiff.tape.nodes import Array, Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module, current_tape
from chainrule.explanation.pictures.graph import subscript, superscript
from chainrule.networks.config import PARTS, HiddenLayersConfig
from chainrule.networks.memory import RecurrentMemory, Sums

_LETTERS = {
    "embedding_norm": ("γ⁰", "β⁰"),
    "attention_norm": ("γ₁", "β₁"),
    "attention.qkv": ("Wqkv", "bqkv"),
    "attention.out": ("Wo", "bo"),
    "feedforward_norm": ("γ₂", "β₂"),
    "feedforward.up": ("W₁", "b₁"),
    "feedforward.out": ("W₂", "b₂"),
    "norm": ("γ", "β"),
    "head": ("U", "c"),
}
"""The symbols of weight and bias in a Transformer; those of a block get its number as a superscript."""
_Named = TypeVar("_Named", bound=Node)
_Step = TypeVar("_Step")


class Prediction:
    """-ln p(target | ids), recorded on the current tape, and the lecture's symbols for its nodes."""

    def __init__(
        self, network: TapeNetwork, ids: Sequence[int], target: int, word: Callable[[int], str], memory: Any = None
    ) -> None:
        """Compute the loss of the target after the ids, which follow `memory`, or the initial state without one.

        `memory` is that of a network that carries one, for a batch of one row. `word` gives the text of a token.
        """
        self.symbols: dict[Node, str] = {}
        self._network, self._word = network, word
        self.parameters: dict[str, Parameter] = {}
        features = self.features(network, ids, memory)
        y = self._named("y", Value(np.int64(target), word(target)))
        self.logits = self._named("z", self._head(features))
        self.loss = SoftmaxCrossEntropy().apply_fwd(self.logits, y)

    @singledispatchmethod
    def features(self, network: TapeNetwork, ids: Sequence[int], memory: Any) -> Node:
        """Return the features of the last token: by default as the network computes them, with all tokens at once.

        A class of networks that is drawn in another way registers a function here.
        """
        drawn = copy.copy(network)
        drawn.parameters = {name: self._parameter(name, name) for name in network.parameters}
        return Slice(np.s_[0, -1]).apply_fwd(drawn.read(np.array([ids]), memory).features)

    @features.register
    def _feedforward(self, network: TapeFeedforward, ids: Sequence[int], memory: Any) -> Node:
        config = network.config
        last = [*network.begin(1).ids_BS[0], *ids][-(config.order - 1) :]
        # x = [E x_1; ...; E x_{n-1}]
        x = Concat().apply_fwd(*(self._embed(token, place) for place, token in enumerate(last, 1)))
        h = self._hidden(config, self._named("x", x))
        return self._projected(Concat().apply_fwd(h, x) if config.direct else h)

    @features.register
    def _bag_of_words(self, network: TapeBagOfWords, ids: Sequence[int], memory: Sums | None) -> Node:
        vectors: list[Node] = [self._embed(token, place) for place, token in enumerate(ids, 1)]
        count = len(ids)
        if memory is not None:
            before = Value(memory.sum_BD[0].astype(np.float64), "sum before")
            vectors.insert(0, self._named("s" + subscript(0), before))
            count += int(memory.count_B[0])
        # m = 1/t Σ_i E x_i, where s_0 is the sum of the vectors before
        s = self._named("s", Sum(axis=0).apply_fwd(Stack(axis=0).apply_fwd(*vectors)))
        return self._projected(self._hidden(network.config, self._named("m", Scale(1 / count).apply_fwd(s))))

    def _hidden(self, config: HiddenLayersConfig, x: Module) -> Module:
        h = x
        for i in range(config.layers):
            layer = subscript(i + 1) if config.layers > 1 else ""
            W = self._parameter("W" + layer, f"hidden.linears.{i}.weight")
            b = [self._parameter("b" + layer, f"hidden.linears.{i}.bias")] if config.bias else []
            # h_1 = f(W_1 x + b_1), then h_l = h_{l-1} + f(W_l h_{l-1} + b_l)
            new: Module = ACTIVATIONS[config.activation]().apply_fwd(Linear().apply_fwd(h, W, *b))
            h = self._named("h" + layer, Add().apply_fwd(h, new) if i else new)
        return h

    @features.register
    def _recurrent(self, network: TapeRecurrent, ids: Sequence[int], memory: RecurrentMemory | None) -> Node:
        states = [self._before(network, i, memory) for i in range(network.config.layers)]
        for t, token in enumerate(ids, 1):
            x: Node = self._embed(token, t)
            for i, state in enumerate(states):
                states[i] = self._step(network, i, x, state, t)
                x = states[i][0]
        return self._projected(x)

    @features.register
    def _qrnn(self, network: TapeQrnn, ids: Sequence[int], memory: RecurrentMemory | None) -> Node:
        first, zeros = memory or network.begin(1), "zeros" if memory is None else "what was read"
        states = [self._before(network, i, memory)[0] for i in range(network.config.layers)]
        # the inputs of each layer so far; those before the first token have the numbers 0, -1, ...
        inputs: list[list[Node]] = [[] for _ in states]
        for i, (_, before_BKD) in enumerate(first.states):
            for n, x_D in enumerate(before_BKD[0].astype(np.float64), 1 - before_BKD.shape[1]):
                inputs[i].append(self._named(("h" + "′" * (i - 1) if i else "e") + subscript(n), Value(x_D, zeros)))
        for t, token in enumerate(ids, 1):
            x: Node = self._embed(token, t)
            for i, c in enumerate(states):
                inputs[i].append(x)
                layer, last = "′" * i, inputs[i][-network.config.kernel :]
                W, b = (
                    self._parameter(letter + layer, QRNN_LAYER.format(i, name))
                    for letter, name in (("W", "weight"), ("b", "bias"))
                )
                sums = Linear().apply_fwd(Concat().apply_fwd(*last) if len(last) > 1 else x, W, b)
                x, states[i] = self._with_symbols(layer + subscript(t), partial(qrnn, sums, c))
        return self._projected(x)

    def _with_symbols(self, ending: str, step: Callable[[], _Step]) -> _Step:
        """Return the result of a step; its modules that have a symbol are named by it and the ending."""
        before = len(current_tape())
        found = step()
        for module in current_tape().modules[before:]:
            if module.symbol:
                self._named(module.symbol + ending, module)
        return found

    def _step(self, network: TapeRecurrent, i: int, x: Node, state: CellState, t: int) -> CellState:
        layer = "′" * i  # primes distinguish the letters of several layers
        names = zip("WbUd", ("weight_ih", "bias_ih", "weight_hh", "bias_hh"), strict=True)
        W, b, *U_d = (
            self._parameter(letter + layer, LAYER.format(i, name))
            for letter, name in names
            if LAYER.format(i, name) in network.parameters
        )
        Wx, cell = Linear().apply_fwd(x, W, b), find_cell(network.config)
        # h_t = cell(x_t, h_{t-1})
        return self._with_symbols(layer + subscript(t), partial(cell, Wx, U_d, state))

    def _before(self, network: TapeRecurrent, i: int, memory: RecurrentMemory | None) -> CellState:
        """Return the state of layer i before the first token: data (`memory` or zeros), or a learned start."""
        letters = "c" if network.config.cell == "qrnn" else "hc"[: PARTS[network.config.cell]]
        symbols = [letter + "′" * i + subscript(0) for letter in letters]
        if memory is None and network.config.learned_start:
            return tuple(self._parameter(symbol, f"starts.{i}", n) for n, symbol in enumerate(symbols))
        name = "zeros" if memory is None else "what was read"
        state = (network.begin(1) if memory is None else memory).states[i]
        return tuple(
            self._named(symbol, Value(part_BH[0].astype(np.float64), name))
            for symbol, part_BH in zip(symbols, state, strict=False)  # not the inputs that a QRNN keeps
        )

    @features.register
    def _transformer(self, network: TapeTransformer, ids: Sequence[int], memory: None) -> Node:
        config, tape, drawn = network.config, current_tape(), copy.copy(network)
        drawn.parameters = {name: self._parameter(_letter(name), name) for name in network.parameters}
        x: Module = self._named("h⁰", drawn.embed_at(np.array(ids)))
        looked_up = next(module for module in reversed(tape.modules) if isinstance(module, Embedding)).in_modules[1]
        words = [self._word(token) for token in ids]
        looked_up.name = " ".join(words if len(words) <= 4 else (words[0], "…", words[-1]))
        self._named("x", looked_up)
        placed = x.in_modules[0] if config.embedding_norm else x
        if isinstance(placed, Add):
            # h⁰ = e + P, or the norm of that
            embedded, position = placed.in_modules
            self._named("e", embedded)
            if not isinstance(position, Module):
                self._named("P", position)
        places = drawn.places(len(ids))
        for layer in range(config.layers):
            before, number = len(tape), superscript(layer + 1)
            x = self._named("h" + number, drawn.block(layer, x, places))
            modules = tape.modules[before:]
            split = [module for module in modules if isinstance(module, SplitHeads)]
            taken = [module for module in modules if isinstance(module, ScaledDotProductAttention)]
            for letter, module in zip("qkvA", [*split, *taken], strict=True):
                self._named(letter + number, module)
        if config.placement == "pre":
            x = drawn.norm("norm", x)
        # the next token is predicted from the last row alone
        return Slice(-1).apply_fwd(x)

    def _embed(self, token: int, place: int) -> Module:
        x = self._named("x" + subscript(place), Value(np.int64(token), self._word(token)))
        e: Module = Embedding().apply_fwd(self._parameter("E", "embedding.weight"), x)
        if self._network.scale != 1:
            e = Scale(self._network.scale).apply_fwd(e)
        return self._named("e" + subscript(place), e)

    def _projected(self, features: Node) -> Node:
        if "projection.weight" not in self._network.parameters:
            return features
        return Linear().apply_fwd(features, self._parameter("P", "projection.weight"))

    def _head(self, features: Node) -> Module:
        network = self._network
        if network.tied:
            table = self._parameter("E", network.table.name)
        else:
            table = self._parameter("O" if isinstance(network, TapeRecurrent) else "U", "head.weight")
        if "head.bias" in network.parameters:
            return Linear().apply_fwd(features, table, self._parameter("c", "head.bias"))
        return _LinearWithoutStart(network.bos).apply_fwd(features, table)

    def _parameter(self, letter: str, name: str, row: int | None = None) -> Parameter:
        """Return the network's parameter of that name, or a row of it, under the lecture's letter."""
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


class _LinearWithoutStart(Linear):
    """z = U h, with -∞ for <s>, which is never predicted; with a bias c, that is in c."""

    def __init__(self, bos: int) -> None:
        self.name, self._bos = Linear.name, bos

    def forward(self, x: Array, W: Array, b: Array | None = None) -> Array:
        z = super().forward(x, W, b)
        z[..., self._bos] = -np.inf
        return z


def _letter(name: str) -> str:
    """Return the symbol of a Transformer's parameter: blocks.0.attention.qkv.weight is Wqkv¹."""
    if name in ("embedding", "positions.added_TD"):
        return "E" if name == "embedding" else "P"
    number = ""
    if name.startswith("blocks."):
        _, layer, name = name.split(".", 2)
        number = superscript(int(layer) + 1)
    module, _, part = name.rpartition(".")
    return _LETTERS[module][part == "bias"] + number
