"""A network as a tagger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from chainrule.arrays import batches, pad
from chainrule.contract.model import Model
from chainrule.errors import ModelError
from chainrule.inference.torch_model import TorchModel
from chainrule.networks.precision import wide_type
from chainrule.networks.tagging.tagger import ENCODER, TaggerNetwork
from chainrule.tagging.contract import FREQUENT, Tagger
from chainrule.tagging.reading import SubwordReader, WordReader, numbered
from chainrule.text.tagged import one_word
from chainrule.tokens.base import Tokenizer
from chainrule.training.layouts import OVERLAP, in_pieces
from chainrule.training.pretrained import PRETRAINED, tuned

WORDS_AT_ONCE = 1 << 13
"""The most words read in one forward pass."""


class NeuralTagger(TorchModel, Tagger):
    """A network, the words of its table, and its tags."""

    def __init__(
        self,
        network: TaggerNetwork,
        tokenizer: Tokenizer,
        tag_tokenizer: Tokenizer,
        frequent_V: np.ndarray,
        *,
        kind: str,
        settings: Any,
        pretrained: Any = None,
    ) -> None:
        """`frequent_V` has the most frequent tag of each word; `pretrained` is the masked model it began from."""
        self.network = network.eval()
        self.tokenizer, self.tag_tokenizer, self.frequent_V = tokenizer, tag_tokenizer, frequent_V
        self.kind, self.settings, self.pretrained = kind, settings, pretrained
        subwords = None if pretrained is None else SubwordReader.of(pretrained.tokenizer, pretrained.context)
        self.reader = WordReader(tokenizer, settings.characters != "none", subwords)

    # -- the contract -------------------------------------------------------------------------------------

    @torch.inference_mode()
    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        if any(isinstance(words, str) for words in sentences):
            raise ModelError(
                "a sentence is a list of words: split the text first, or use chainrule.tag(model, texts)"
            )
        words, rows = numbered([[one_word(word) for word in words] for words in sentences])
        if b"" in words:
            raise ModelError("a word is empty")
        if not words:
            return [np.zeros((0, len(self.tags))) for _ in rows]
        lengths, every = np.asarray([len(row) for row in rows]), np.concatenate(rows)
        ends = np.cumsum(lengths)
        most = self.settings.longest
        overlap, most = (0, int(lengths.max())) if most is None else (most // OVERLAP, most)
        has_words = lengths > 0
        _, starts, sizes, skips = in_pieces((ends - lengths)[has_words], ends[has_words], most, overlap)
        distinct, found = self.reader.read(words), np.zeros((len(every), len(self.tags)))
        for some in batches(sizes, WORDS_AT_ONCE):
            inputs = distinct.inputs(pad([every[starts[i] : starts[i] + sizes[i]] for i in some]))
            tensors = (torch.from_numpy(np.ascontiguousarray(array)).to(self.torch_device) for array in inputs)
            logits_BTK = self.network(type(inputs)(*tensors))
            log_probs_BTK = logits_BTK.to(wide_type(logits_BTK)).log_softmax(dim=-1).cpu().numpy()
            for i, log_probs_TK in zip(some, log_probs_BTK, strict=True):
                found[starts[i] + skips[i] : starts[i] + sizes[i]] = log_probs_TK[skips[i] : sizes[i]]
        return np.split(found, ends[:-1])

    def frequent_tags(self, words: Sequence[str]) -> list[str]:
        if not words:
            return []
        ids_T = self.reader.read([one_word(word).encode() for word in words]).ids_N
        return [self.tags[self.frequent_V[i]] for i in ids_T]

    # -- as any model -------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the weights, without those of a pretrained encoder, which is a part of the folder by itself."""
        arrays = {name: array for name, array in super().tensors().items() if not name.startswith(ENCODER)}
        return {**arrays, FREQUENT: self.frequent_V.astype(np.int32)}

    def parts(self) -> Mapping[str, Model]:
        """Return the pretrained masked model, with its encoder as it is after training."""
        if self.pretrained is None:
            return {}
        assert self.network.words.pretrained is not None
        return {PRETRAINED: tuned(self.pretrained, self.network.words.pretrained.encoder)}
