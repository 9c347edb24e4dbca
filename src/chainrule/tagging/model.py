"""A network as a tagger."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from chainrule.arrays import batches, pad
from chainrule.contract.model import Model
from chainrule.errors import ModelError
from chainrule.inference.torch_model import TorchModel
from chainrule.networks.tagging.tagger import ENCODER, TaggerNetwork
from chainrule.tagging.contract import Tagger
from chainrule.tagging.reading import SubwordReader, WordReader, numbered, pieces
from chainrule.text.tagged import one_word
from chainrule.tokens.base import Tokenizer
from chainrule.training.batches.layouts import OVERLAP

PRETRAINED = "pretrained"
"""The name of the part of a tagger's folder that is the masked model its words' features come from."""
FREQUENT = "most_frequent"
"""The array of a tagger's folder with the most frequent tag of each word."""
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
        subwords = (
            None if pretrained is None else SubwordReader.of(pretrained.tokenizer, pretrained.context or "line")
        )
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
        most = self.settings.longest
        cut = [
            (number, *piece)
            for number, row in enumerate(rows)
            for piece in pieces(len(row), most, 0 if most is None else most // OVERLAP)
            if len(row)
        ]
        distinct = self.reader.read(words) if words else None
        found = [np.zeros((len(row), len(self.tags))) for row in rows]
        lengths = np.asarray([end - start for _, start, end, _ in cut], np.int64)
        for some in batches(lengths, WORDS_AT_ONCE):
            assert distinct is not None
            parts = [cut[i] for i in some]
            inputs = distinct.inputs(pad([rows[number][start:end] for number, start, end, _ in parts]))
            tensors = (torch.from_numpy(np.ascontiguousarray(array)).to(self.torch_device) for array in inputs)
            logits_BTK = self.network(type(inputs)(*tensors))
            wide = torch.promote_types(logits_BTK.dtype, torch.float32)
            log_probs_BTK = logits_BTK.to(wide).log_softmax(dim=-1).cpu().numpy()
            for (number, start, end, skip), log_probs_TK in zip(parts, log_probs_BTK, strict=True):
                found[number][start + skip : end] = log_probs_TK[skip : end - start]
        return found

    def frequent_tags(self, words: Sequence[str]) -> list[str]:
        if not words:
            return []
        ids_T = self.reader.read([one_word(word).encode() for word in words]).ids_N
        return [self.tags[self.frequent_V[i]] for i in ids_T]

    # -- as any model -------------------------------------------------------------------------------------

    def _with(self, network: TaggerNetwork) -> NeuralTagger:
        return NeuralTagger(
            network,
            self.tokenizer,
            self.tag_tokenizer,
            self.frequent_V,
            kind=self.kind,
            settings=self.settings,
            pretrained=self.pretrained,
        )

    def tensors(self) -> dict[str, np.ndarray]:
        """The weights but those of a pretrained encoder, which its own part of the folder has."""
        arrays = {name: array for name, array in super().tensors().items() if not name.startswith(ENCODER)}
        return {**arrays, FREQUENT: self.frequent_V.astype(np.int32)}

    def parts(self) -> Mapping[str, Model]:
        """The masked model that it began from, with its encoder as it is now."""
        if self.pretrained is None:
            return {}
        tuned = copy.copy(self.pretrained)
        tuned.network = copy.deepcopy(self.pretrained.network)
        assert self.network.words.pretrained is not None
        tuned.network.encoder.load_state_dict(self.network.words.pretrained.encoder.state_dict())
        return {PRETRAINED: tuned}
