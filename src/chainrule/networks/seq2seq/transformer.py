"""The Transformer encoder-decoder (Vaswani and others 2017), of any of the designs of `TransformerConfig`.

It has three attentions: tokens of the source to all of the source, tokens of the target to those before them, and
tokens of the target to the source. Its blocks are those of the decoder alone, with the third one added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from chainrule.networks.layers import Head, Table
from chainrule.networks.network import Reading
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder, SourcedMemory, Sources
from chainrule.networks.transformer.attention import CrossAttention, Kept, SourceView
from chainrule.networks.transformer.decoder import Transformer
from chainrule.networks.transformer.stack import Encoder


class TransformerEncoderDecoder(EncoderDecoder):
    """An encoder, and a decoder whose blocks attend to it."""

    def __init__(
        self, config: Seq2SeqSettings, vocab_size: int, bos: int, source_size: int, *, shares: bool
    ) -> None:
        """`shares`: sources and targets have one vocabulary, and one table of embeddings."""
        super().__init__()
        design = config.transformer()
        self.window, self.source_window = config.longest_sides
        self.source_start = bos if config.source_start else None
        self.label_smoothing = config.label_smoothing
        extra = config.extra_ids
        self.decoder = Transformer(design, vocab_size, bos, crosses=True, extra=extra)
        self.head.measured += extra if config.pretrain == "spans" else 0
        shared = self.decoder.embedding if shares else None
        self.encoder = Encoder(design, source_size + extra, embedding=shared)

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The head of the decoder."""
        return self.decoder.head

    def table(self) -> Table:
        return self.decoder.table()

    def encode(self, source_BS: Tensor, is_token_BS: Tensor) -> SourcedMemory:
        if self.source_start is not None:
            source_BS = pad(source_BS, (1, 0), value=self.source_start)
            is_token_BS = pad(is_token_BS, (1, 0), value=True)
        features_BSD = self.encoder(source_BS, is_token_BS)
        crosses: list[CrossAttention] = [block.cross for block in self.decoder.blocks]  # type: ignore[misc]
        arrays = [array for cross in crosses for array in cross.keys_values(features_BSD)]
        return SourcedMemory(None, Sources(tuple(arrays), is_token_BS))

    def restart(self, memory: SourcedMemory) -> SourcedMemory:
        return SourcedMemory(self.decoder.begin(len(memory.sources)), memory.sources)

    def forward(
        self, ids_BT: Tensor, memory: Any = None, is_token_BT: Tensor | None = None, kept: Kept = None
    ) -> Reading:
        reading = self.decoder(ids_BT, memory.target, is_token_BT, self.view(memory.sources, kept))
        return Reading(reading.features_BTD, SourcedMemory(reading.memory, memory.sources))

    def read_whole(self, ids_BT: Tensor, encoded: SourcedMemory) -> Tensor:
        # without the cache, through which no gradient would flow
        reading: Reading = self.decoder(ids_BT, source=self.view(encoded.sources))
        return reading.features_BTD

    def view(self, sources: Sources, kept: Kept = None) -> Callable[[int], SourceView]:
        """Return the view of the sources by each layer, as a function of the layer."""
        seen = sources.seen()
        dropout = self.decoder.attention_dropout if self.training else 0.0

        def of_layer(layer: int) -> SourceView:
            k_NSGK, v_NSGK = seen.arrays[2 * layer : 2 * layer + 2]
            return SourceView(k_NSGK.transpose(1, 2), v_NSGK.transpose(1, 2), seen.is_token_NS, dropout, kept)

        return of_layer

    def flops_per_token(self) -> float:
        """Return those of a `Transformer` for a token of target and of source, without attention itself."""
        stacks = [*self.decoder.blocks.parameters(), *self.encoder.blocks.parameters(), self.head.weight]
        return 6.0 * sum(weight.numel() for weight in stacks if weight.dim() == 2)
