"""Sampling the next token by the kernels of choice_kernels.py: `decode.sample.Choice` on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.inference.choice_plan import ChoicePlan
from chainrule.inference.gpu.step import NormArguments, Step, launch_options, power_of_two
from chainrule.networks.layers import Head
from chainrule.networks.precision import wide_type

_PIECE = 4096
_WHOLE, _PART = (
    16384,
    4096,
)  # tokens that one program looks at together: all of them, or a piece of a larger vocabulary


def penalised(logits_BV: Tensor, counts_BV: Tensor | None, plan: ChoicePlan, bias_V: Tensor) -> Tensor:
    """Return the logits after penalties on tokens that occurred so often, and biases: see decode/strategies.py."""
    z_BV = logits_BV.float()
    for name, value in plan.penalties:
        assert counts_BV is not None
        if name == "repetition_penalty":
            z_BV = torch.where(counts_BV > 0, torch.where(z_BV > 0, z_BV / value, z_BV * value), z_BV)
        elif name == "presence_penalty":
            z_BV = z_BV - value * (counts_BV > 0)
        else:
            z_BV = z_BV - value * counts_BV
    return z_BV + bias_V if plan.bias else z_BV


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
    """The choice of a token for each row by kernels, which write it and its score to the buffers."""

    def __init__(
        self,
        plan: ChoicePlan,
        head: Head,
        buffers: StepBuffers,
        bos: int,
        *,
        counts_BV: Tensor | None = None,
        step: Step | None = None,
    ) -> None:
        """`counts_BV` says how often each token occurred, for penalties; `step` reads the embeddings in `x_BD`."""
        self.plan, self.head, self.buffers, self.bos = plan, head, buffers, bos
        self.counts_BV, self.step = counts_BV, step
        rows, device = len(buffers.active_B), buffers.active_B.device
        self.pieces = -(-head.vocab_size // _PIECE)
        self.slots = power_of_two(plan.k or 1)
        slots, pieces = (rows, self.pieces, self.slots), (rows, self.pieces)
        self.kept = KeptTokens(
            torch.empty(slots, device=device),
            torch.zeros(slots, dtype=torch.int32, device=device),
            torch.empty(pieces, device=device),
            torch.empty(pieces, device=device),
            torch.tensor([value for _, value in plan.operations] or [0], dtype=torch.float32, device=device),
        )
        self.forbidden = torch.tensor(plan.forbidden or (0,), device=device)
        self.bias_V = torch.zeros(head.vocab_size if plan.bias else 0, device=device)
        for token, value in plan.bias:
            self.bias_V[token] += value
        self.operations = sum(code << (3 * i) for i, (code, _) in enumerate(plan.operations))
        self.is_token_B = torch.zeros(rows, dtype=torch.bool, device=device)
        self.ids_B = torch.zeros(rows, dtype=torch.int64, device=device)
        """The chosen tokens; 0 for rows that chose none."""
        self.x_BD = torch.empty_like(buffers.features_BD)
        self.ahead, self.launch = launch_options(device)

    def from_features(self) -> None:
        """Choose a token for each row from the features in the buffers."""
        self.choose(F.linear(self.buffers.features_BD, self.head.weight, self.head.bias))

    def choose(self, logits_BV: Tensor) -> None:
        """Choose a token for each row; write it and its score to the buffers, and its embedding to `x_BD`."""
        from chainrule.inference.gpu import choice_kernels as kernels

        plan, buffers, size = self.plan, self.buffers, self.head.vocab_size
        bits, changed_BV = self._bits(logits_BV), logits_BV
        if plan.changes:
            changed_BV = penalised(logits_BV[:, :size], self.counts_BV, plan, self.bias_V)
        end = PAD - 1 if plan.end is None else plan.end
        shared = buffers, self.embedding(), self.is_token_B, self.ids_B, end, *self.sizes()
        if plan.k is not None:
            self.keep_best(logits_BV, changed_BV)
            pieces = power_of_two(self.pieces)
            kernels.choose_from_best[(len(self.x_BD),)](
                logits_BV, self.kept, logits_BV.stride(0), *shared, PAD, self.operations, len(plan.operations),
                self.pieces, pieces, self.slots, bits, self.ahead,
                num_warps=8 if pieces * self.slots <= 4096 else 16, **self.launch,
            )  # fmt: skip
        else:
            block = power_of_two(size) if size <= _WHOLE else _PART
            kernels.choose_from_all[(len(self.x_BD),)](
                logits_BV, changed_BV, self.forbidden, self.kept.operands, logits_BV.stride(0),
                changed_BV.stride(0), size, self.bos, *shared, PAD, self.operations, len(plan.operations),
                plan.changes, len(plan.forbidden), block, bits, self.ahead,
                num_warps=max(min(block // 256, 16), 1), **self.launch,
            )  # fmt: skip
        if self.counts_BV is not None:
            self.counts_BV.scatter_add_(1, self.ids_B[:, None], self.is_token_B[:, None].to(self.counts_BV.dtype))

    def keep_best(self, logits_BV: Tensor, changed_BV: Tensor) -> None:
        """Write the k best of the changed logits of each piece of each row, and its Σ e^z, to `kept`."""
        from chainrule.inference.gpu import choice_kernels as kernels

        plan = self.plan
        kernels.best_of_piece[(len(self.x_BD), self.pieces)](
            logits_BV, changed_BV, self.forbidden, *self.kept[:4], logits_BV.stride(0), changed_BV.stride(0),
            self.head.vocab_size, self.bos, plan.k, plan.changes, len(plan.forbidden), _PIECE, self.slots,
            self._bits(logits_BV), self.ahead, num_warps=8, **self.launch,
        )  # fmt: skip

    def _bits(self, logits_BV: Tensor) -> int:
        """Return how many upper bits of the logits that tokens are chosen by are not 0."""
        return 16 if logits_BV.dtype == torch.bfloat16 and not self.plan.changes else 32

    def embedding(self) -> TokenVectors:
        """Return the tables of the network's embeddings; any arrays if they are not asked for."""
        if self.step is None:
            return TokenVectors(self.x_BD, self.x_BD, self.x_BD)
        places = self.x_BD if self.step.places_TD is None else self.step.places_TD
        return TokenVectors(self.step.table.weight_VD, places, self.x_BD)

    def sizes(self) -> tuple[float | int, ...]:
        """Return the numbers that `record` of choice_kernels.py takes: a scale, sizes, and what there is."""
        width, steps = self.x_BD.shape[1], self.buffers.tokens_BT.shape[1]
        if self.step is None:
            return 1.0, steps, 0, width, power_of_two(width), False, False
        window, has_places = self.buffers.ids_BW.shape[1], self.step.places_TD is not None
        return self.step.table.scale, steps, window, width, power_of_two(width), True, has_places


class FusedSampling(FusedChoice):
    """A step of sampling by kernels: choose, read the tokens, and update the buffers."""

    def __call__(self, read: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Take one step; the buffers are updated in place, and by `read` the memory of the network.

        `read` takes embeddings, which rows have a token, and how many they have read: `FixedMemory.read_embedded`.
        """
        self.from_features()
        self.finish(read(self.x_BD, self.is_token_B, self.buffers.lengths_B))

    def finish(self, x_BD: Tensor) -> None:
        """Update the features, from what the network's step returned, and the lengths of rows that read a token."""
        from chainrule.inference.gpu import choice_kernels as kernels

        assert self.step is not None
        buffers, width = self.buffers, x_BD.shape[1]
        norm = NormArguments.of(self.step.last_norm, x_BD)
        kernels.finish[(len(x_BD),)](
            x_BD, *norm.vectors, self.is_token_B, buffers.features_BD, buffers.lengths_B, buffers.column_1,
            norm.eps, width,
            power_of_two(width), norm.how, *norm.has, self.ahead, num_warps=4, **self.launch,
        )  # fmt: skip
