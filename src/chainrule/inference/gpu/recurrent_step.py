"""The step of a recurrent decoder that has a source, by kernels, but for its cells, which are cuDNN's.

What comes after the cells are many small operations, each of which takes a GPU as long as a kernel. Here scores,
softmax and sum of attention are one kernel, the layer behind them is another one, and a third one writes the memory
of the rows that read a token. `RecurrentEncoderDecoder.forward` says what they compute.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from chainrule.inference.gpu.step import TANH, Step, are_available, power_of_two
from chainrule.networks.seq2seq.alignment import Alignment
from chainrule.networks.seq2seq.recurrent import DecoderMemory, RecurrentEncoderDecoder

_TILE = 8192  # numbers of states that a program looks at together


class RecurrentStep(Step):
    """The step of one network, with sources at fixed addresses."""

    def __init__(
        self, network: RecurrentEncoderDecoder, rows: int, arrays: tuple[Tensor, ...], lasts_N: Tensor
    ) -> None:
        """`arrays` are keys and states of the sources, none without attention; `lasts_N` their last positions."""
        width = network.config.width
        super().__init__(network.table(), None, rows, width)
        self.network, self.arrays, self.lasts_N, self.width = network, arrays, lasts_N, width
        self.query_BD = torch.empty_like(self.normed)
        self.both_BD = self.normed.new_empty(rows, 2 * width)
        """Context and state side by side, [c; h]."""

    def read(self, x_BD: Tensor, memory: DecoderMemory, is_token_B: Tensor) -> Tensor:
        """Return the features for embeddings of one token a row; rows with a token have a new memory, in place."""
        from chainrule.inference.gpu import recurrent_kernels as kernels

        network = self.network
        if network.config.feeding:
            x_BD = torch.cat([x_BD, memory.found_BD], dim=-1)
        h_B1D, states = network.through_layers(x_BD[:, None], memory.states, None)
        found_BD = self._find(h_B1D[:, 0].contiguous())
        news = (*(part_BD.contiguous() for state in states for part_BD in state), found_BD)
        olds = (*(part_BD for state in memory.states for part_BD in state), memory.found_BD)
        kernels.replace_rows[(self.rows,)](
            news, olds, is_token_B, self.width, power_of_two(self.width), self.ahead, num_warps=4, **self.launch,
        )  # fmt: skip
        features_BD: Tensor = network.projection(found_BD)
        return features_BD

    def _find(self, h_BD: Tensor) -> Tensor:
        """h̃ = tanh(W [c; h]); without attention, h."""
        from chainrule.inference.gpu import recurrent_kernels as kernels

        alignment, mix = self.network.alignment, self.network.mix
        if alignment is None or mix is None:
            return h_BD
        keys_BSD, states_BSD = self.arrays
        block_d = power_of_two(self.width)
        is_additive = alignment.kind == "additive"
        query_BD = self.linear(h_BD, alignment.query, self.query_BD) if is_additive else h_BD
        kernels.attend_to_states[(self.rows,)](
            query_BD, h_BD, keys_BSD, states_BSD, self.lasts_N, alignment.v if is_additive else h_BD, self.both_BD,
            _scale(alignment), keys_BSD.stride(0), self.width, block_d, max(_TILE // block_d, 1), is_additive,
            self.ahead, num_warps=8, **self.launch,
        )  # fmt: skip
        return self.linear(self.both_BD, mix, torch.empty_like(h_BD), activation=TANH)


def recurrent_step(
    network: Any, rows: int, arrays: tuple[Tensor, ...] = (), lasts_N: Tensor | None = None
) -> RecurrentStep | None:
    """Return the step for these sources; None for a network of another kind, or where no kernels run."""
    if not isinstance(network, RecurrentEncoderDecoder) or lasts_N is None:
        return None
    is_possible = are_available(network.table().weight_VD, rows)
    return RecurrentStep(network, rows, arrays, lasts_N) if is_possible else None


def _scale(alignment: Alignment) -> float:
    return 1 / math.sqrt(alignment.width) if alignment.kind == "scaled" else 1.0
