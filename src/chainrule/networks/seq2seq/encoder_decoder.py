"""The interface of encoder-decoders: networks whose memory begins from a source.

    p(y | x) = Π_t p(y_t | y_<t, x)

The encoder reads the source x once. The decoder reads the target y as any network reads its text, and looks at the
source through its memory: so an encoder-decoder is a `Network`, and what serves networks serves it.

Axes: B rows, N sources, S source time, T target time, D features.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from chainrule.arrays import PAD
from chainrule.networks.memory import ArrayMemory, Memory
from chainrule.networks.network import BatchLoss, Network, Reading
from chainrule.networks.transformer.attention import Kept


@dataclass(frozen=True, eq=False)
class Sources(Memory):
    """The encoded sources of the rows of a batch.

    The hypotheses of a beam search share a source: rows point to sources, and selecting rows copies none.
    """

    arrays: tuple[Tensor, ...]
    """The outputs of the encoder for each source, [N, S, ...] each."""
    is_token_NS: Tensor
    rows_B: Tensor | None = None
    """The index of each row's source; None: equally many successive rows share each source, or each has its own."""

    def select(self, rows_B: Tensor) -> Sources:
        rows_B = rows_B.to(self.is_token_NS.device)
        return Sources(self.arrays, self.is_token_NS, rows_B if self.rows_B is None else self.rows_B[rows_B])

    def join(self, other: Sources) -> Sources:
        mine, theirs = self.each(), other.each()
        widest = max(mine.is_token_NS.shape[1], theirs.is_token_NS.shape[1])
        arrays = [
            torch.cat([_widened(one, widest), _widened(two, widest)])
            for one, two in zip((*mine.arrays, mine.is_token_NS), (*theirs.arrays, theirs.is_token_NS), strict=True)
        ]
        return Sources(tuple(arrays[:-1]), arrays[-1])

    def detach(self) -> Sources:
        return Sources(tuple(array.detach() for array in self.arrays), self.is_token_NS, self.rows_B)

    def __len__(self) -> int:
        return len(self.is_token_NS) if self.rows_B is None else len(self.rows_B)

    def each(self) -> Sources:
        """Return the sources with one for each row."""
        return self if self.rows_B is None else self._taken(self.rows_B)

    def _taken(self, numbers_N: Tensor) -> Sources:
        return Sources(tuple(array[numbers_N] for array in self.arrays), self.is_token_NS[numbers_N])

    def seen(self) -> Sources:
        """Return the sources, with each of them once where equally many successive rows share it.

        On a GPU there is one for each row: copying them takes less time than waiting to see which rows share one.
        """
        rows_B = self.rows_B
        if rows_B is None or rows_B.device.type != "cpu" or not len(rows_B):
            return self.each()
        first_N, counts_N = torch.unique_consecutive(rows_B, return_counts=True)
        if not bool((counts_N == counts_N[0]).all()):
            return self.each()
        if len(first_N) == len(self.is_token_NS) and bool((first_N == torch.arange(len(first_N))).all()):
            return Sources(self.arrays, self.is_token_NS)
        return self._taken(first_N)


def _widened(array: Tensor, width: int) -> Tensor:
    """Return the array [N, S, ...] with zeros at the end of the axis S, up to a width."""
    return pad(array, (0, 0) * (array.dim() - 2) + (0, width - array.shape[1]))


@dataclass(frozen=True, eq=False)
class SourcedMemory(ArrayMemory):
    """The memory of a decoder, and the sources that its rows look at."""

    target: Any
    sources: Sources


class EncoderDecoder(Network):
    """A network that writes a target for a source; constructed from (config, vocab_size, bos, source_size)."""

    SHARES: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    reads_two_sides = True
    label_smoothing: float
    source_window: int | None
    """The most tokens of a source; None: any number."""

    @abstractmethod
    def encode(self, source_BS: Tensor, is_token_BS: Tensor) -> SourcedMemory:
        """Return the encoded source of each row; `restart` makes of it a memory to read on from."""

    @abstractmethod
    def restart(self, memory: SourcedMemory) -> SourcedMemory:
        """Return the memory before anything of a target was read, with the same sources."""

    def begin_from(self, source_BS: Tensor, is_token_BS: Tensor) -> SourcedMemory:
        """Return the memory after the source of each row, before anything of a target was read."""
        return self.restart(self.encode(source_BS, is_token_BS))

    @abstractmethod
    def read_whole(self, ids_BT: Tensor, encoded: SourcedMemory) -> Tensor:
        """Return the features of whole targets, [B, T, D], with gradients."""

    @abstractmethod
    def forward(
        self, ids_BT: Tensor, memory: Any = None, is_token_BT: Tensor | None = None, kept: Kept = None
    ) -> Reading:
        """Read on from a memory, as `Network.forward` does; `kept` is given the attention to sources."""

    def begin(self, batch_size: int) -> Memory:
        raise ValueError("an encoder-decoder begins from sources: begin_from")

    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of targets after (sources [B, S], inputs [B, T]), with PAD as in `Network.loss`."""
        source_BS, inputs_BT = inputs
        encoded = self.encode(source_BS.clamp(min=0), source_BS != PAD)
        features_BTD = self.read_whole(inputs_BT.clamp(min=0), encoded)
        nats = self.head.nats(features_BTD, targets_BT)
        smoothing = None
        if self.training and self.label_smoothing:
            smoothing = self.label_smoothing * self._smoothing_cost(features_BTD, targets_BT)
        return BatchLoss(nats, smoothing, None)

    def _smoothing_cost(self, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the extra loss of the mean token over the target, in nats: the mean of z_y - mean(z) over targets.

        With a share ε of it the loss is that of label smoothing, (1 - ε) (-ln p_y) + ε mean(-ln p). Logits are
        linear in the rows of the head's table, so that their mean is that of the mean row.
        """
        weight_VD, size = self.head.weight, self.head.vocab_size
        is_target_BT = targets_BT != PAD
        ids_BT = targets_BT.clamp(min=0)
        towards_BTD = weight_VD[ids_BT] - weight_VD[:size].mean(dim=0)
        gap_BT = (features_BTD.to(towards_BTD.dtype) * towards_BTD).sum(dim=-1)
        if self.head.bias is not None:
            gap_BT = gap_BT + self.head.bias[ids_BT] - self.head.bias[:size].mean()
        return torch.where(is_target_BT, gap_BT, 0.0).sum() / is_target_BT.sum().clamp(min=1)
