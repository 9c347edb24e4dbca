"""The Transformer decoder on the tape: every token attends to the tokens before it, layer after layer.

    x⁰   = E[id] + position                      normalised, if the design says so
    xˡ   = Blockˡ(xˡ⁻¹)                          attention over the tokens so far, then a network on each token
    p(·) = softmax(U Norm(xᴸ))                   the head

`networks/transformer/decoder.py` is the same network in torch, with the same parameters.

Axes: T tokens, D features, H heads of queries, G heads of keys and values, R = H / G, K features of a head, I pairs
of features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from chainrule.autodiff.networks.cache import Appending, Cache
from chainrule.autodiff.networks.network import Randomness, Reading, Shape, TapeNetwork, dropout, keep_mask
from chainrule.autodiff.tape.attention import MergeHeads, Rotate, ScaledDotProductAttention, SplitHeads
from chainrule.autodiff.tape.modules import GELU, Add, ErfGELU, LayerNorm, Linear, Multiply, ReLU, RMSNorm, Sigmoid
from chainrule.autodiff.tape.moves import Reshape, Slice
from chainrule.autodiff.tape.nodes import Array, Node, Parameter, Value
from chainrule.autodiff.tape.tape import Module, has_nan
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.step_on_cpu import (
    PATIENCE,
    Block,
    Ends,
    PositionTables,
    Step,
    suits,
)
from chainrule.system.threads import threads_now


class Places(NamedTuple):
    """The positions of the tokens that are read, as the attention of every layer uses them."""

    rotation: tuple[Array, Array] | None = None
    """cos and sin for `Rotate`, where positions are rotary."""
    bias: Array | None = None
    """What is added to the scores, [..., H or 1, T, S]: the bias of ALiBi, and -inf where a key is not seen."""
    cached: Appending | None = None
    """Where keys and values go, if earlier tokens have theirs in a cache; None: positions are 0 to T-1."""


class TapeTransformer(TapeNetwork):
    """A decoder of any of the designs of `TransformerConfig`. <s> is a token like any other to it."""

    keeps_cache, table_setting = True, "width"

    config: TransformerConfig

    @classmethod
    def shapes(cls, config: TransformerConfig, vocab_size: int) -> dict[str, Shape]:
        rows, width, size = padded_size(vocab_size), config.width, config.head_size
        found: dict[str, Shape] = {"embedding": (rows, width)}

        def norm(name: str) -> None:
            # only a LayerNorm with biases has a shift
            parts = ("weight", "bias") if config.norm == "layernorm" and config.bias else ("weight",)
            found.update({f"{name}.{part}": (width,) for part in parts if config.gain})

        def linear(name: str, rows: int, columns: int) -> None:
            found[f"{name}.weight"] = rows, columns
            if config.bias:
                found[f"{name}.bias"] = (rows,)

        if config.positions == "learned":
            found["positions.added_TD"] = config.window, width
        if config.embedding_norm:
            norm("embedding_norm")
        for name in (f"blocks.{layer}" for layer in range(config.layers)):
            norm(f"{name}.attention_norm")
            linear(f"{name}.attention.qkv", (config.heads + 2 * config.kv_heads) * size, width)
            if config.qk_gain:
                found |= {f"{name}.attention.{each}_gain_K": (size,) for each in "qk"}
            linear(f"{name}.attention.out", width, config.heads * size)
            norm(f"{name}.feedforward_norm")
            linear(f"{name}.feedforward.up", config.hidden * (2 if config.activation == "swiglu" else 1), width)
            linear(f"{name}.feedforward.out", width, config.hidden)
        if config.placement == "pre":
            norm("norm")
        return found if config.tied else {**found, "head.weight": (rows, width)}

    @classmethod
    def fill(cls, weight: Array, name: str, config: TransformerConfig, randomness: Generator) -> None:
        if weight.ndim == 2:
            std = config.initial_std * (config.added_scale if name.endswith(".out.weight") else 1.0)
            weight[:] = randomness.normal(0, std, weight.shape)
        elif name.endswith(("norm.weight", "gain_K")):
            weight[:] = 1

    @property
    def tokens_at_once(self) -> int:
        return self.config.window

    @property
    def table(self) -> Parameter:
        return self.parameters["embedding"]

    @property
    def scale(self) -> float:
        return math.sqrt(self.config.width) if self.config.scaled_embedding else 1.0

    def begin(self, batch_size: int) -> Cache:
        config = self.config
        shape_LBGK = config.layers, batch_size, config.kv_heads, config.head_size
        return Cache.empty(shape_LBGK, self.table.out_tensor.dtype)

    def read(
        self,
        ids_BT: Array,
        memory: Cache | None = None,
        is_token_BT: Array | None = None,
        randomness: Randomness = None,
    ) -> Reading:
        """As `TapeNetwork.read` says; no gradient flows through the cache, and without one none is made."""
        config, steps = self.config, ids_BT.shape[1]
        longest = steps + (0 if memory is None else memory.longest)
        if longest > config.window:
            raise ValueError(f"a window of {config.window} tokens was given {longest}: read the last of them only")
        cached: Appending | None = None
        if memory is not None:
            cached = memory.append(steps, steps if is_token_BT is None else is_token_BT.sum(axis=1))
        if cached is not None and steps == 1 and self._has_loops(cached):
            features_BD = self._read_by_loops(ids_BT, cached, is_token_BT)
            if features_BD is not None and not has_nan(
                features_BD
            ):  # the modules below name the first of them that makes NaN
                return Reading(Value(features_BD[:, None]), cached.after)
        places = self.places(steps, cached)
        # padding at the end is seen by nothing that comes before it
        x: Node = dropout(self.embed_at(ids_BT, randomness, cached), config.embedding_dropout, randomness)
        for layer in range(config.layers):
            x = self.block(layer, x, places, randomness)
        # pre-norm blocks do not normalise their sum, so that is done after the last one
        features = self.norm("norm", x) if config.placement == "pre" else x
        return Reading(features, None if cached is None else cached.after)

    # -- one token a row by compiled loops: the same as the modules below compute, without the tape -------------

    def _has_loops(self, cached: Appending) -> bool:
        """Return True if compiled loops read one token a row, and enough were read for them to pay off."""
        is_single = cached.after.buffer.arrays_2LBGSK.dtype == self.table.out_tensor.dtype == np.float32
        return is_single and suits(self.config) and PATIENCE.count(len(cached.places_BT))

    def _read_by_loops(self, ids_B1: Array, cached: Appending, is_token_B1: Array | None) -> Array | None:
        """Return the features [B, D] of one token a row; its keys and values are written to the cache."""
        config, positions = self.config, PositionTables()
        if config.positions == "rotary":
            positions = PositionTables(*rotary_tables(config.window, config.head_size, config.rotary_base))
        elif config.positions == "alibi":
            positions = PositionTables(slopes_H=alibi_slopes(config.heads))
        blocks = list(map(self._block, range(config.layers)))
        step = Step(config, blocks, Ends(*self._numbers("norm")), positions, threads_now())
        x_BD = np.ascontiguousarray(self.embed_at(ids_B1, None, cached).out_tensor[:, 0])
        places_B = np.minimum(cached.places_BT[:, 0], config.window - 1)
        is_token_B = None if is_token_B1 is None else is_token_B1[:, 0]
        keys_LBGSK, values_LBGSK = cached.after.buffer.arrays_2LBGSK
        return step.read(x_BD, (keys_LBGSK, values_LBGSK), places_B, is_token_B)

    def _block(self, layer: int) -> Block:
        """Return the weights of a block for the loops."""
        first, second = (
            ("attention_norm", "attention.qkv", "attention.out"),
            ("feedforward_norm", "feedforward.up", "feedforward.out"),
        )
        return Block(*(weight for part in first + second for weight in self._numbers(f"blocks.{layer}.{part}")))

    def _numbers(self, name: str) -> tuple[Array | None, Array | None]:
        """Return the weight and the bias of a norm or a product, for the loops; None where it has none."""
        weight, bias = (self.parameters.get(f"{name}.{part}") for part in ("weight", "bias"))
        return None if weight is None else weight.out_tensor, None if bias is None else bias.out_tensor

    def embed_at(self, ids: Array, randomness: Randomness = None, cached: Appending | None = None) -> Module:
        """x⁰ = E[id] + position, or the norm of that."""
        config = self.config
        x = self.embed(ids, config.token_dropout, randomness)
        if config.positions in ("learned", "sinusoidal"):
            x = Add().apply_fwd(x, self._added_positions(ids.shape[-1], cached))
        return self.norm("embedding_norm", x) if config.embedding_norm else x

    def _added_positions(self, steps: int, cached: Appending | None) -> Node:
        """Return the vectors of positions that are added to the embeddings, [T, D] or [B, T, D]."""
        config = self.config
        if cached is None and config.positions == "learned":
            return Slice(slice(0, steps)).apply_fwd(self.parameters["positions.added_TD"])
        if config.positions == "learned":
            table_TD = self.parameters["positions.added_TD"].out_tensor
        else:
            table_TD = sinusoidal_table(steps if cached is None else config.window, config.width)
        # padding may have positions beyond the window
        return Value(table_TD if cached is None else table_TD[np.minimum(cached.places_BT, config.window - 1)])

    def places(self, steps: int, cached: Appending | None = None) -> Places:
        """Return the positions of the tokens of a text, or of those that come after the tokens of a cache."""
        config, bias = self.config, None
        # the same for every head
        places = np.arange(steps) if cached is None else cached.places_BT[:, None]
        rotation: tuple[Array, Array] | None = None
        if config.positions == "rotary":
            rows = steps if cached is None else config.window
            cos_TI, sin_TI = rotary_tables(rows, config.head_size, config.rotary_base)
            within = np.minimum(places, rows - 1)  # padding may have positions beyond the window
            rotation = cos_TI[within], sin_TI[within]
        sees_all = cached is None or cached.sees_all
        if config.positions == "alibi" or not sees_all:
            distance = places[..., None] - np.arange(steps if cached is None else cached.span)
            if config.positions == "alibi":
                # head h subtracts m_h d from the score of a key at distance d
                bias = -alibi_slopes(config.heads).astype(np.float64)[:, None, None] * distance
            if not sees_all:
                # a token sees itself and those before it
                bias = np.where(distance < 0, -np.inf, 0.0 if bias is None else bias)
        return Places(rotation, bias, cached)

    # -- the block: norms, and a feed-forward part after attention --------------------------------------------
    #
    # pre:   x + f(Norm(x))
    # post:  Norm(x + f(x))                    f is attention, then the feed-forward part
    #
    # With residual=false nothing is added: f(Norm(x)), or Norm(f(x)).

    def block(self, layer: int, x: Node, places: Places, randomness: Randomness = None) -> Module:
        """Attention, then the feed-forward part, each with a residual connection and a norm."""
        name = f"blocks.{layer}"
        attend = partial(self.self_attention, f"{name}.attention", places=places, randomness=randomness)
        transform = partial(self.feed_forward, f"{name}.feedforward", randomness=randomness)
        x = self._residual(f"{name}.attention_norm", x, attend, randomness)
        return self._residual(f"{name}.feedforward_norm", x, transform, randomness)

    def _residual(self, name: str, x: Node, part: Callable[[Node], Module], randomness: Randomness) -> Module:
        """Apply a part of a block with its residual connection and its norm, which has that name."""
        is_pre, config = self.config.placement == "pre", self.config
        # x + f(Norm(x)), or Norm(x + f(x))
        added: Node = part(self.norm(name, x) if is_pre else x)
        # dropout of single features and, by `layer_dropout`, of whole rows
        added = dropout(added, config.dropout, randomness)
        added = dropout(added, config.layer_dropout, randomness, (len(added.out_tensor), 1, 1))
        z = Add().apply_fwd(x, added) if config.residual else added
        if not is_pre:
            return self.norm(name, z)
        assert isinstance(z, Module)
        return z

    def norm(self, name: str, x: Node) -> Module:
        """LayerNorm or RMSNorm of x, with the gain and the shift that there are."""
        kind = LayerNorm if self.config.norm == "layernorm" else RMSNorm
        return kind(self.config.norm_eps).apply_fwd(x, *self.learned(name))

    def linear(self, name: str, x: Node) -> Module:
        """W x + b, or W x if there is no bias of that name."""
        return Linear().apply_fwd(x, *self.learned(name))

    def feed_forward(self, name: str, x: Node, randomness: Randomness = None) -> Module:
        """f(x) = W₂ φ(W₁ x + b₁) + b₂, for each token by itself."""
        hidden = activate(self.config.activation, self.linear(f"{name}.up", x))
        return self.linear(f"{name}.out", dropout(hidden, self.config.hidden_dropout, randomness))

    # -- multi-head self-attention: each token compares its query with the keys of the tokens so far -----------
    #
    # [Q; K; V] = W x + b                      for each head
    # A = softmax(Q Kᵀ / sqrt(d_k)) V          a mean of the values, weighted by how well the keys match
    # z = W_out [A_1; ...; A_H] + b_out
    #
    # Query heads may share a head of keys and values: each has its own (multi-head), all share one (multi-query),
    # or groups of them do (grouped-query).

    def self_attention(self, name: str, x: Node, places: Places, randomness: Randomness = None) -> Module:
        """Attention of each token x_t to the tokens up to t: x and the result are [..., T, D]."""
        H, G, size = self.config.heads, self.config.kv_heads, self.config.head_size
        qkv = self.linear(f"{name}.qkv", x)
        # queries, keys and values stand side by side in one matrix
        q, k, v = (
            SplitHeads(heads).apply_fwd(Slice(np.s_[..., first * size : (first + heads) * size]).apply_fwd(qkv))
            for first, heads in ((0, H), (H, G), (H + G, G))
        )
        query, key = (
            self._positioned(f"{name}.q_gain_K", q, places),
            self._positioned(f"{name}.k_gain_K", k, places),
        )
        if places.cached is None:
            taken = self._attend(query, key, v, places.bias, randomness)
        else:
            layer = int(name.split(".")[1])
            keys_BGSK, values_BGSK = places.cached.write(layer, key.out_tensor, v.out_tensor)
            taken = self._attend(query, Value(keys_BGSK), Value(values_BGSK), places.bias, causal=False)
        return self.linear(f"{name}.out", MergeHeads().apply_fwd(taken))

    def _positioned(self, gain_K: str, x: Module, places: Places) -> Module:
        """Queries or keys [..., T, K], normalised and rotated if the design says so."""
        if self.config.qk_norm:
            gains = [self.parameters[gain_K]] if gain_K in self.parameters else []
            x = RMSNorm(self.config.norm_eps).apply_fwd(x, *gains)
        return x if places.rotation is None else Rotate(*places.rotation).apply_fwd(x)

    def _attend(
        self, q: Module, k: Node, v: Node, bias: Array | None, randomness: Randomness = None, *, causal: bool = True
    ) -> Module:
        """softmax(Q Kᵀ / sqrt(d_k) + B) V, [..., H, T, K]: head h of queries goes with head h // R of the keys."""
        G, R = self.config.kv_heads, self.config.heads // self.config.kv_heads
        *leading, H, T, K = shape = q.out_tensor.shape
        S = k.out_tensor.shape[-2]
        scores = (*leading, H, T, S)
        if R > 1:
            # an axis of length 1 in keys and values serves all R heads of a group
            q = Reshape(*leading, G, R, T, K).apply_fwd(q)
            k, v = (Reshape(*leading, G, 1, S, K).apply_fwd(each) for each in (k, v))
            if bias is not None:
                groups = (G, R) if bias.shape[-3] == H else (1, 1)
                bias = bias.reshape(*bias.shape[:-3], *groups, T, S)
            scores = (*leading, G, R, T, S)
        share = self.config.attention_dropout
        keep = keep_mask(scores, share, randomness) if randomness is not None and share else None
        taken: Module = ScaledDotProductAttention(causal=causal, bias=bias, keep=keep).apply_fwd(q, k, v)
        return Reshape(*shape).apply_fwd(taken) if R > 1 else taken

    def flops_per_token(self) -> float:
        """Floating-point operations of training on a token of a full window, as the torch network counts them."""
        config, table = self.config, self.table if self.tied else self.parameters["head.weight"]
        matrices = (one.out_tensor for name, one in self.parameters.items() if name.startswith("blocks."))
        products = sum(tensor.size for tensor in matrices if tensor.ndim == 2) + table.out_tensor.size
        return 6.0 * products + 12.0 * config.layers * config.window * config.width


def activate(activation: str, z: Module) -> Module:
    """φ(z); for swiglu, the first half of z is a gate for the second half."""
    if activation == "gelu":
        # z Φ(z)
        return GELU().apply_fwd(z)
    if activation == "gelu_erf":
        return ErfGELU().apply_fwd(z)
    if activation == "swiglu":
        half = z.out_tensor.shape[-1] // 2
        gate, through = (Slice(where).apply_fwd(z) for where in (np.s_[..., :half], np.s_[..., half:]))
        # g σ(g) ⊙ z
        return Multiply().apply_fwd(Multiply().apply_fwd(gate, Sigmoid().apply_fwd(gate)), through)
    # max(0, z), and of relu2 its square
    relu = ReLU().apply_fwd(z)
    return Multiply().apply_fwd(relu, relu) if activation == "relu2" else relu


# -- positions: attention alone sees a set of tokens, not a sequence -------------------------------------------
#
# Learned and sinusoidal positions are vectors added to the embedding, rotary ones rotate queries and keys, ALiBi
# lowers the scores of distant keys. All tables are rounded to float32, as those of the torch network, so that both
# compute the same function.


@lru_cache(maxsize=8)
def sinusoidal_table(steps: int, width: int) -> Array:
    """Return the sinusoidal positions, [T, D]: features 2i and 2i+1 are sine and cosine of one wavelength."""
    angles_TI = np.arange(steps)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    table_TD = np.empty((steps, width), np.float32)
    # PE(t, 2i) = sin(t / 10000^(2i/D)),  PE(t, 2i+1) = cos(t / 10000^(2i/D))
    table_TD[:, 0::2] = np.sin(angles_TI)
    table_TD[:, 1::2] = np.cos(angles_TI[:, : width // 2])
    return table_TD


@lru_cache(maxsize=8)
def rotary_tables(steps: int, head_size: int, base: float) -> tuple[Array, Array]:
    """cos and sin of the angles tθ_i by which `Rotate` rotates the pair i at position t, each [T, I]."""
    # θ_i = base^(-2i/K)
    angles_TI = np.arange(steps)[:, None] * base ** (-np.arange(0, head_size, 2) / head_size)
    return np.cos(angles_TI).astype(np.float32), np.sin(angles_TI).astype(np.float32)


def alibi_slopes(heads: int) -> Array:
    """Return the slopes m_h = 2^(-8h/n) for h = 1..n, [H].

    If n is no power of two, the slopes are those of the power below, then every other one of the power above.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return np.array(slopes + between[: heads - power], np.float32)
