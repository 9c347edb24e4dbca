"""The choice of the next token by the loops of choice_kernel.py: what `decode.sample.Choice` computes, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import (
    COLDEST,
    Chain,
    Forbid,
    Greedy,
    MinP,
    Sample,
    Strategy,
    Temperature,
    TopK,
    TopP,
)
from chainrule.neural.blocks import Norm
from chainrule.neural.gpu_step import FusedStep, NormArguments, power_of_two

MOST_KEPT = 1024
"""With more, looking at all tokens is not slower."""
_PIECE = 4096
_TEMPERATURE, _TOP_K, _TOP_P, _MIN_P = 1, 2, 3, 4
_MOST_OPERATIONS = 9  # three bits of a number for each


@dataclass(frozen=True)
class Plan:
    """A choice that begins by keeping the k best tokens."""

    forbidden: tuple[int, ...]
    k: int
    operations: tuple[tuple[int, float], ...]
    """What is done to those, each with its value; first of all exactly k are kept."""
    end: int | None


def plan_of(choose: Callable[..., Any]) -> Plan | None:
    """How to make this choice by the loops; None if it looks at more than the best few."""
    if not isinstance(choose, Choice):
        return None
    forbidden: tuple[int, ...] = ()
    k: int | None = None
    operations: list[tuple[int, float]] = []
    for strategy in _flat(choose.strategy):
        if isinstance(strategy, Sample):
            continue
        if isinstance(strategy, Forbid) and k is None:
            forbidden += strategy.tokens
        elif isinstance(strategy, Greedy) or (isinstance(strategy, Temperature) and strategy.value < COLDEST):
            k = _keep(operations, k, 1)
        elif isinstance(strategy, Temperature):
            operations.append((_TEMPERATURE, strategy.value))
        elif isinstance(strategy, TopK):
            k = _keep(operations, k, strategy.k)
        elif isinstance(strategy, TopP) and k is not None:
            operations.append((_TOP_P, strategy.p))
        elif isinstance(strategy, MinP) and k is not None:
            operations.append((_MIN_P, strategy.p))
        else:
            return None
    if k is None or k > MOST_KEPT or len(operations) > _MOST_OPERATIONS:
        return None
    return Plan(forbidden, k, tuple(operations), choose.end)


def _keep(operations: list[tuple[int, float]], k: int | None, kept: int) -> int:
    """Keep the best so many; the first time before all else, since temperatures do not change the order."""
    operations.insert(0 if k is None else len(operations), (_TOP_K, kept))
    return k or kept


def _flat(strategy: Strategy) -> tuple[Strategy, ...]:
    return strategy.strategies if isinstance(strategy, Chain) else (strategy,)


@dataclass(frozen=True)
class Desk:
    """What the steps of a recording read and write, at fixed addresses."""

    features_BD: Tensor
    going_B: Tensor
    uniforms_BT: Tensor
    tokens_BT: Tensor
    scores_BT: Tensor
    ids_BW: Tensor
    lengths_B: Tensor
    column_1: Tensor
    """Which of the columns of uniforms, tokens and scores is next."""


class FusedChoice:
    """Chooses a token for each row of a desk, has the network read it, and writes both down."""

    def __init__(self, plan: Plan, step: FusedStep, desk: Desk, bos: int) -> None:
        self.plan, self.network_step, self.desk, self.bos = plan, step, desk, bos
        self.head = step.network.head
        rows, device = len(desk.going_B), desk.going_B.device
        self.pieces = -(-self.head.vocab_size // _PIECE)
        self.slots = power_of_two(plan.k)
        kept, each = (rows, self.pieces, self.slots), (rows, self.pieces)
        self.z, self.tokens = torch.empty(kept, device=device), torch.zeros(kept, dtype=torch.int32, device=device)
        self.best, self.total = torch.empty(each, device=device), torch.empty(each, device=device)
        self.forbidden = torch.tensor(plan.forbidden or (0,), device=device)
        self.values = torch.tensor([value for _, value in plan.operations], dtype=torch.float32, device=device)
        self.operations = sum(code << (3 * i) for i, (code, _) in enumerate(plan.operations))
        self.is_token_B = torch.zeros(rows, dtype=torch.bool, device=device)
        self.x_BD = torch.empty_like(desk.features_BD)

    def __call__(self, keys_LBGSK: Tensor, values_LBGSK: Tensor) -> None:
        """One step."""
        logits_BV = F.linear(self.desk.features_BD, self.head.weight, self.head.bias)
        self.choose(logits_BV)
        self.finish(self.network_step.read(self.x_BD, keys_LBGSK, values_LBGSK, self.desk.lengths_B))

    def choose(self, logits_BV: Tensor) -> None:
        """The token, its score, and its vector."""
        from chainrule.neural import choice_kernel as kernels

        plan, desk, step = self.plan, self.desk, self.network_step
        rows, width = self.x_BD.shape
        bits = 16 if logits_BV.dtype == torch.bfloat16 else 32
        kernels.best_of_piece[(rows, self.pieces)](
            logits_BV, self.forbidden, self.z, self.tokens, self.best, self.total, logits_BV.stride(0),
            self.head.vocab_size, self.bos, plan.k, len(plan.forbidden), _PIECE, self.slots, bits, step.ahead,
            num_warps=8, **step.launch,
        )  # fmt: skip
        table, places = step.network.table(), step.network.positions.added_TD
        pieces = power_of_two(self.pieces)
        kernels.choose[(rows,)](
            self.z, self.tokens, self.best, self.total, self.values, desk.uniforms_BT, desk.going_B, desk.column_1,
            desk.lengths_B, desk.tokens_BT, desk.scores_BT, desk.ids_BW, self.is_token_B, table.weight_VD,
            self.x_BD if places is None else places, self.x_BD, table.scale, desk.tokens_BT.shape[1],
            desk.ids_BW.shape[1], PAD - 1 if plan.end is None else plan.end, PAD, self.operations,
            len(plan.operations), self.pieces, pieces, self.slots, bits, width, power_of_two(width),
            places is not None, step.ahead, num_warps=8 if pieces * self.slots <= 4096 else 16, **step.launch,
        )  # fmt: skip

    def finish(self, x_BD: Tensor) -> None:
        """Features and lengths of the rows that read a token."""
        from chainrule.neural import choice_kernel as kernels

        desk, step, width = self.desk, self.network_step, x_BD.shape[1]
        last = step.network.norm
        assert isinstance(last, Norm)
        norm = NormArguments.of(last, x_BD)
        kernels.finish[(len(x_BD),)](
            x_BD, *norm.vectors, self.is_token_B, desk.features_BD, desk.lengths_B, desk.column_1, norm.eps, width,
            power_of_two(width), norm.how, *norm.has, step.ahead, num_warps=4, **step.launch,
        )  # fmt: skip
