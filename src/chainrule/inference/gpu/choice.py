"""Sampling the next token by the kernels of choice_kernels.py: `decode.sample.Choice` on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.contract.capabilities import Choose
from chainrule.inference.gpu.step import FusedStep, NormArguments, power_of_two
from chainrule.networks.precision import wide_type
from chainrule.networks.transformer.blocks import Norm

MOST_KEPT = 1024
"""The largest k for the kernels; if more tokens are kept, looking at the whole vocabulary is not slower."""
_PIECE = 4096
_CODES = {"temperature": 1, "top_k": 2, "top_p": 3, "min_p": 4}  # as choice_kernels.py has them
_MOST_OPERATIONS = 9  # their codes are packed into one integer, three bits each


@dataclass(frozen=True)
class TopKPlan:
    """A choice that begins by keeping the k best tokens, in the form that the kernels take."""

    forbidden: tuple[int, ...]
    k: int
    operations: tuple[tuple[int, float], ...]
    """Codes of the operations on those k tokens, each with its value; the first keeps exactly k."""
    end: int | None


def plan_of(choose: Choose) -> TopKPlan | None:
    """Return the plan of a choice; None if it looks at more than k tokens, or the kernels lack an operation."""
    if choose.operations is None:
        return None
    forbidden: tuple[int, ...] = ()
    k: int | None = None
    operations: list[tuple[int, float]] = []
    for name, value in choose.operations:
        if name == "forbid" and k is None:
            forbidden += value
        elif name == "top_k":
            # the first one comes before all else, since temperatures do not change the order of tokens
            operations.insert(0 if k is None else len(operations), (_CODES[name], value))
            k = k or value
        elif name == "temperature" or (name in _CODES and k is not None):
            operations.append((_CODES[name], value))
        else:
            return None
    if k is None or k > MOST_KEPT or len(operations) > _MOST_OPERATIONS:
        return None
    return TopKPlan(forbidden, k, tuple(operations), choose.end)


class StepBuffers(NamedTuple):
    """The arrays that a captured step reads and writes, at fixed addresses; T counts steps, W is the window."""

    features_BD: Tensor
    active_B: Tensor
    """False for rows that have ended."""
    uniforms_BT: Tensor
    tokens_BT: Tensor
    scores_BT: Tensor
    ids_BW: Tensor
    lengths_B: Tensor
    column_1: Tensor
    """The index of the next column of uniforms, tokens and scores."""

    @classmethod
    def of_size(cls, rows: int, steps: int, window: int, weight_VD: Tensor) -> StepBuffers:
        """Return empty buffers for a network whose head has this weight."""
        zeros, int64 = weight_VD.new_zeros, torch.int64
        return cls(
            features_BD=zeros(rows, weight_VD.shape[1]),
            active_B=torch.ones(rows, dtype=torch.bool, device=weight_VD.device),
            uniforms_BT=zeros(rows, steps, dtype=torch.float64),
            tokens_BT=zeros(rows, steps, dtype=int64),
            scores_BT=zeros(rows, steps, dtype=wide_type(weight_VD)),
            ids_BW=zeros(rows, window, dtype=int64),
            lengths_B=zeros(rows, dtype=int64),
            column_1=zeros(1, dtype=int64),
        )


class KeptTokens(NamedTuple):
    """The best tokens of each piece of the vocabulary, and the operands of the operations on them."""

    z: Tensor
    """Logits, [B, pieces, slots]."""
    tokens: Tensor
    best: Tensor
    """The largest logit of each piece, [B, pieces]."""
    total: Tensor
    """Σ e^z of each piece, relative to its largest, [B, pieces]."""
    operands: Tensor
    """The value of each operation on the kept tokens. (Triton's own tuples have an attribute `values`.)"""


class TokenVectors(NamedTuple):
    """The tables that the embedding of a chosen token is read from, and the array it is written to."""

    table: Tensor
    places: Tensor
    """Positional embeddings; anything where there are none."""
    x: Tensor


class FusedChoice:
    """A step of sampling: chooses a token for each row, has the network read it, and updates the buffers."""

    def __init__(self, plan: TopKPlan, step: FusedStep, buffers: StepBuffers, bos: int) -> None:
        self.plan, self.network_step, self.buffers, self.bos = plan, step, buffers, bos
        self.head = step.network.head
        rows, device = len(buffers.active_B), buffers.active_B.device
        self.pieces = -(-self.head.vocab_size // _PIECE)
        self.slots = power_of_two(plan.k)
        slots, pieces = (rows, self.pieces, self.slots), (rows, self.pieces)
        self.kept = KeptTokens(
            torch.empty(slots, device=device),
            torch.zeros(slots, dtype=torch.int32, device=device),
            torch.empty(pieces, device=device),
            torch.empty(pieces, device=device),
            torch.tensor([value for _, value in plan.operations], dtype=torch.float32, device=device),
        )
        self.forbidden = torch.tensor(plan.forbidden or (0,), device=device)
        self.operations = sum(code << (3 * i) for i, (code, _) in enumerate(plan.operations))
        self.is_token_B = torch.zeros(rows, dtype=torch.bool, device=device)
        self.x_BD = torch.empty_like(buffers.features_BD)

    def __call__(self, keys_LBGSK: Tensor, values_LBGSK: Tensor) -> None:
        """Take one step; the buffers and the network's keys and values are updated in place."""
        logits_BV = F.linear(self.buffers.features_BD, self.head.weight, self.head.bias)
        self.choose(logits_BV)
        self.finish(self.network_step.read(self.x_BD, keys_LBGSK, values_LBGSK, self.buffers.lengths_B))

    def choose(self, logits_BV: Tensor) -> None:
        """Choose a token for each row; write it and its score to the buffers, and its embedding to `x_BD`."""
        from chainrule.inference.gpu import choice_kernels as kernels

        plan, buffers, step = self.plan, self.buffers, self.network_step
        rows, width = self.x_BD.shape
        bits = 16 if logits_BV.dtype == torch.bfloat16 else 32
        kernels.best_of_piece[(rows, self.pieces)](
            logits_BV, self.forbidden, *self.kept[:4], logits_BV.stride(0),
            self.head.vocab_size, self.bos, plan.k, len(plan.forbidden), _PIECE, self.slots, bits, step.ahead,
            num_warps=8, **step.launch,
        )  # fmt: skip
        table, places = step.network.table(), step.network.positions.added_TD
        pieces = power_of_two(self.pieces)
        kernels.choose[(rows,)](
            self.kept, buffers, TokenVectors(table.weight_VD, self.x_BD if places is None else places, self.x_BD),
            self.is_token_B, table.scale, buffers.tokens_BT.shape[1],
            buffers.ids_BW.shape[1], PAD - 1 if plan.end is None else plan.end, PAD, self.operations,
            len(plan.operations), self.pieces, pieces, self.slots, bits, width, power_of_two(width),
            places is not None, step.ahead, num_warps=8 if pieces * self.slots <= 4096 else 16, **step.launch,
        )  # fmt: skip

    def finish(self, x_BD: Tensor) -> None:
        """Update the features, from the last block's output x_BD, and the lengths of the rows that read a token."""
        from chainrule.inference.gpu import choice_kernels as kernels

        buffers, step, width = self.buffers, self.network_step, x_BD.shape[1]
        last = step.network.norm
        assert isinstance(last, Norm)
        norm = NormArguments.of(last, x_BD)
        kernels.finish[(len(x_BD),)](
            x_BD, *norm.vectors, self.is_token_B, buffers.features_BD, buffers.lengths_B, buffers.column_1,
            norm.eps, width,
            power_of_two(width), norm.how, *norm.has, step.ahead, num_warps=4, **step.launch,
        )  # fmt: skip
