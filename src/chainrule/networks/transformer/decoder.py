"""The Transformer decoder: every token attends to the tokens before it, layer after layer.

    x⁰   = E[id] + position      normalised, where the design has it so
    xˡ   = Blockˡ(xˡ⁻¹)          attention over the tokens so far, then a small network on each token
    p(·) = softmax(W Norm(xᴸ))   the head

Training reads whole windows at once. Generation reads on from a key-value cache, in pieces of any length; `step`
does so for one token a row, without the host ever waiting for the device.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chainrule.networks.layers import Head
from chainrule.networks.network import Network, Reading
from chainrule.networks.precision import working_type
from chainrule.networks.transformer.attention import Attend, fused_attention, single_query_attention
from chainrule.networks.transformer.cache import Appending, Buffer, Cache, empty_cache, write_at
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.stack import Stack, Views
from chainrule.networks.transformer.step_on_cpu import (
    PATIENCE,
    Array,
    Block,
    Ends,
    PositionTables,
    Step,
    TokenChoice,
    suits,
)

_FIRST_CAPACITY = 64


class Transformer(Stack, Network):
    """A decoder of any of the designs of `TransformerConfig`. <s> is a token like any other to it."""

    uses_every_weight, keeps_cache = True, True

    def __init__(
        self, config: TransformerConfig, vocab_size: int, bos: int = 0, *, crosses: bool = False, extra: int = 0
    ) -> None:
        """`crosses`: its blocks attend to a source as well, which `forward` is then given.

        `extra` ids above the vocabulary have embeddings too.
        """
        super().__init__(config, vocab_size + extra, crosses=crosses)
        self.window = config.window
        tied_to = self.embedding if config.tied else None
        self.head = Head(config.width, vocab_size, tied_to=tied_to, extra=extra)
        self.initialise(self.embedding, self.head.weight)

    def begin(self, batch_size: int, capacity: int | None = None) -> Cache:
        """Return an empty cache, which grows as tokens are read; `capacity` reserves space for some at once."""
        config = self.config
        shape_LBGK = config.layers, batch_size, config.kv_heads, config.head_size
        capacity = min(capacity or _FIRST_CAPACITY, config.window)
        like = self.embedding.new_empty(0, dtype=working_type(self.embedding))
        return empty_cache(shape_LBGK, config.window, capacity, like)

    def forward(
        self, ids_BT: Tensor, memory: Cache | None = None, is_token_BT: Tensor | None = None, source: Views = None
    ) -> Reading:
        """Read on from a cache, without gradients; or, without one, read a window and return no cache."""
        if memory is not None:
            with torch.no_grad():
                return self._read_on(ids_BT, memory, is_token_BT, source)
        T = ids_BT.shape[1]
        self.check_fits(T)
        # padding stands at the end, where no token attends to it
        attend_all = self._attending(slice(0, T), T, ids_BT.device)
        return Reading(self.features(ids_BT, slice(0, T), lambda layer: attend_all, source), None)

    def _read_on(self, ids_BT: Tensor, memory: Cache, is_token_BT: Tensor | None, source: Views) -> Reading:
        appending = memory.append(ids_BT.shape[1], is_token_BT)
        if source is None and ids_BT.shape[1] == 1 and self._has_loops(appending.after.buffer, len(ids_BT)):
            features_BD = self._read_by_loops(ids_BT, appending, is_token_BT)
            if features_BD is not None:
                return Reading(features_BD[:, None], appending.after)
        attend_all = self._attending(appending.places, appending.span, ids_BT.device)

        def attend_remembered(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend_all(q, *appending.write(layer, k, v))

        attends = lambda layer: partial(attend_remembered, layer)  # noqa: E731
        features_BTD = self.features(ids_BT, appending.places, attends, source)
        return Reading(features_BTD, appending.after)

    def _has_loops(self, buffer: Buffer, tokens: int) -> bool:
        """Return True if compiled loops read one token a row, and enough were read for them to pay off."""
        keys = buffer.keys_LBGSK
        is_plain = keys.device.type == "cpu" and keys.dtype == self.embedding.dtype == torch.float32
        can = is_plain and keys.is_contiguous() and suits(self.config) and not self.training
        return can and PATIENCE.count(tokens)

    def _step(self) -> Step:
        """Return the network as the loops see it."""
        positions, tables = self.positions, PositionTables()
        if positions.cos_TK is not None and positions.sin_TK is not None:
            half = self.config.head_size // 2  # both halves of a head are rotated by the same angles
            halves = positions.cos_TK[:, :half], positions.sin_TK[:, half:]
            tables = PositionTables(*(table.contiguous().numpy() for table in halves))
        elif positions.slopes_H is not None:
            tables = PositionTables(slopes_H=positions.slopes_H.numpy())
        added_TD = None if positions.added_TD is None else positions.added_TD.detach().numpy()
        before = () if self.embedding_norm is None else _numbers(self.embedding_norm)
        ends = Ends(*_numbers(self.norm), *_numbers(self.head), self.embedding.detach().numpy(), added_TD, *before)
        blocks = list(map(_block, self.blocks))
        return Step(self.config, blocks, ends, tables, torch.get_num_threads())

    def _read_by_loops(self, ids_B1: Tensor, appending: Appending, is_token_B1: Tensor | None) -> Tensor | None:
        """Return the features [B, D] of one token a row; its keys and values are written to the cache."""
        buffer, places = appending.after.buffer, appending.places
        places_B1 = torch.full_like(ids_B1, places.start) if isinstance(places, slice) else places
        x_BD = self.embed(ids_B1, places_B1)[:, 0].contiguous().numpy()
        is_token_B = None if is_token_B1 is None else is_token_B1[:, 0].numpy()
        cache = buffer.keys_LBGSK.numpy(), buffer.values_LBGSK.numpy()
        features_BD = self._step().read(x_BD, cache, places_B1[:, 0].numpy(), is_token_B)
        return None if features_BD is None else torch.from_numpy(features_BD)

    @property
    def writes(self) -> bool:
        return suits(self.config)

    def write(self, features_BD: Tensor, memory: Cache, choice: TokenChoice) -> tuple[Tensor, Cache] | None:
        """Write the tokens of a choice by compiled loops, on a CPU; return features and cache after them.

        None if the loops cannot do it, or would not pay off yet.
        """
        rows, steps = choice.tokens_BT.shape
        if not self._has_loops(memory.buffer, rows * steps):
            return None
        after = memory.append(steps).after
        features, lengths_B = features_BD.numpy().copy(), memory.lengths_B.numpy().copy()
        cache = after.buffer.keys_LBGSK.numpy(), after.buffer.values_LBGSK.numpy()
        if not self._step().write(features, cache, lengths_B, choice):
            return None
        longest, is_uniform = int(lengths_B.max()), bool((lengths_B == lengths_B[0]).all())
        after = replace(after, lengths_B=torch.from_numpy(lengths_B), longest=longest, is_uniform=is_uniform)
        return torch.from_numpy(features), after

    def _attending(self, places: slice | Tensor, span: int, device: torch.device) -> Attend:
        """Return the function for causal attention of the tokens at these positions to the first `span` keys."""
        dropout = self.attention_dropout if self.training else 0.0
        is_usual = isinstance(places, slice) and places == slice(0, self.config.window)
        if isinstance(places, slice):
            if self.positions.slopes_H is None and places.stop - places.start in (1, span):
                # a single token sees all keys, and tokens from the beginning on need no mask but `is_causal`
                is_causal = places.stop - places.start > 1
                return partial(fused_attention, is_causal=is_causal, dropout=dropout, is_usual=is_usual)
            places = torch.arange(places.start, places.stop, device=device)
        return partial(fused_attention, mask=self.positions.mask(places, span), dropout=dropout, is_usual=is_usual)

    def step(
        self, ids_B: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor, source: Views = None
    ) -> Tensor:
        """Read one token a row, and return its features [B, D]: `forward` with a cache, all of it on the device.

        Keys and values are written in place, at position lengths_B; the caller then adds 1 to lengths_B. Shapes and
        addresses stay the same from step to step, and no control flow depends on values, so that the step can be
        compiled, or captured as a CUDA graph and replayed.
        """
        return self.steps(ids_B[:, None], keys_LBGSK, values_LBGSK, lengths_B, source)[:, 0]

    def steps(
        self, ids_BT: Tensor, keys_LBGSK: Tensor, values_LBGSK: Tensor, lengths_B: Tensor, source: Views = None
    ) -> Tensor:
        """Return the same as `step` for T tokens a row, read at once: their features, [B, T, D]."""
        T = ids_BT.shape[1]
        places_BT = lengths_B[:, None] + torch.arange(T, device=lengths_B.device)
        mask = self.positions.mask(places_BT, keys_LBGSK.shape[3])
        attend = single_query_attention if T == 1 else fused_attention

        def attend_in_place(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            write_at(places_BT, keys_LBGSK[layer], k)
            write_at(places_BT, values_LBGSK[layer], v)
            return attend(q, keys_LBGSK[layer], values_LBGSK[layer], mask)

        return self.features(ids_BT, places_BT, lambda layer: partial(attend_in_place, layer), source)

    def flops_per_token(self) -> int:
        """Return the floating-point operations of training on a token of a full window.

        Each of N weights in matrix products is multiplied and added once forward, twice backward: 6N. Each query is
        multiplied with the keys of the window, and its weights with their values: 2 products forward and 4 backward
        of 2 · window · width, in each layer. The half that the mask hides is counted too, as is usual.
        """
        products = sum(p.numel() for p in self.blocks.parameters() if p.dim() == 2) + self.head.weight.numel()
        return 6 * products + 12 * self.config.layers * self.config.window * self.config.width


def _block(block: Any) -> Block:
    """Return the weights of a block for the loops on a CPU."""
    attention, feedforward = block.attention, block.feedforward
    first = block.attention_norm, attention.qkv, attention.out
    second = block.feedforward_norm, feedforward.up, feedforward.out
    return Block(*(weight for part in (*first, *second) for weight in _numbers(part)))


def _numbers(part: Any) -> tuple[Array | None, Array | None]:
    """Return the weight and the bias of a norm or a product; None where it has none."""
    weight, bias = (None if one is None else one.detach().numpy() for one in (part.weight, part.bias))
    return weight, bias
