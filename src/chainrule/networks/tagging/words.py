"""The features of a word in its sentence, side by side.

E[word]          a vector of the table; words that are not in it share that of <unk>
spelling         read from the bytes of the word, so that unknown words have one too
encoder          of a pretrained masked model: the mean of the features of the word's subwords
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.arrays import PAD
from chainrule.networks.layers import Embedding
from chainrule.networks.recurrent.both_ways import BothWays
from chainrule.networks.tagging.config import BYTES, FILTERS, SPELLED, TaggerSettings, WordInputs
from chainrule.networks.transformer.stack import Encoder

_BYTE_IDS = BYTES + 2  # and the two marks
_SMALL = 0.1  # the standard deviation of the first vectors of words that have other features too


class WordFeatures(nn.Module):
    """[E[word]; spelling; encoder]: the features of each word, of `width` numbers."""

    def __init__(self, config: TaggerSettings, vocab_size: int, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.embedding = Embedding(vocab_size, config.embedding, tied=False)
        if config.characters != "none" or encoder is not None:
            # the spelling of a rare word should count for more than its first vector, which is random
            nn.init.normal_(self.embedding.weight, std=_SMALL)
        self.spelling: LstmSpelling | CnnSpelling | None = None
        if config.characters != "none":
            self.spelling = (LstmSpelling if config.characters == "lstm" else CnnSpelling)(config.spelling)
        self.width = config.embedding + (config.spelling if self.spelling is not None else 0)
        self.pretrained: PretrainedFeatures | None = None
        if encoder is not None:
            self.pretrained = PretrainedFeatures(encoder)
            self.width += encoder.config.width
            if config.frozen:
                encoder.freeze()

    def forward(self, inputs: WordInputs) -> Tensor:
        """Return the features of each word, [B, T, D]; those of padding mean nothing."""
        words_BT = inputs.words_BT.clamp(min=0)
        parts = [self.embedding(words_BT)]
        if self.spelling is not None:
            # each distinct word of the batch is read once
            spelled_UD = self.spelling(inputs.spellings_UC)
            parts.append(functional.embedding(inputs.distinct_BT, spelled_UD))
        if self.pretrained is not None:
            parts.append(self.pretrained(inputs.subwords_BS, inputs.word_of_BS, words_BT.shape[1]))
        return torch.cat([part.to(parts[-1].dtype) for part in parts], dim=-1)


class LstmSpelling(nn.Module):
    """The last states of an LSTM over the bytes, in both directions (Ling and others 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = Embedding(_BYTE_IDS, SPELLED, tied=False)
        self.layers = BothWays("lstm", SPELLED, width, 1, 0.0)

    def forward(self, spellings_UC: Tensor) -> Tensor:
        bytes_UCD = self.embedding(spellings_UC.clamp(min=0))
        _, ((h_UD, _),) = self.layers(bytes_UCD, (spellings_UC != PAD).sum(dim=1))
        last_UD: Tensor = h_UD
        return last_UD


class CnnSpelling(nn.Module):
    """Filters over a few bytes at a time, and the greatest value of each (Ma and Hovy 2016).

    A filter is a product with the vectors of these bytes, side by side: on a CPU much faster than a convolution.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = Embedding(_BYTE_IDS, SPELLED, tied=False)
        sizes = [width // len(FILTERS) + (i < width % len(FILTERS)) for i in range(len(FILTERS))]
        self.filters = nn.ModuleList(
            nn.Linear(seen * SPELLED, size) for size, seen in zip(sizes, FILTERS, strict=True)
        )

    def forward(self, spellings_UC: Tensor) -> Tensor:
        is_byte_UC = spellings_UC != PAD
        bytes_UCD = self.embedding(spellings_UC.clamp(min=0)) * is_byte_UC[..., None]
        lengths_U1 = is_byte_UC.sum(dim=1, keepdim=True)
        found = []
        for seen, one in zip(FILTERS, self.filters, strict=True):
            # the bytes before and after a word are 0, so that a filter sees its first and its last byte alone too
            padded_UCD = functional.pad(bytes_UCD, (0, 0, seen - 1, seen - 1))
            windows_UCDK = padded_UCD.unfold(1, seen, 1)
            values_UCF = torch.relu(one(windows_UCDK.flatten(2)))
            columns_C = torch.arange(values_UCF.shape[1], device=lengths_U1.device)
            is_seen_UC = columns_C < lengths_U1 + seen - 1
            found.append(values_UCF.masked_fill(~is_seen_UC[..., None], 0.0).amax(dim=1))
        return torch.cat(found, dim=1)


class PretrainedFeatures(nn.Module):
    """The features of words from an encoder over subwords: the mean of those of a word's subwords.

    A sentence of more subwords than the encoder reads at once is read in pieces.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, subwords_BS: Tensor, word_of_BS: Tensor, words: int) -> Tensor:
        B, S = subwords_BS.shape
        pieces = torch.split(subwords_BS, self.encoder.config.window, dim=1)
        features_BSD = torch.cat([self._piece(ids_BS) for ids_BS in pieces], dim=1)
        # one more row for each sentence, for the features of padding
        rows_BS = word_of_BS + (words + 1) * torch.arange(B, device=word_of_BS.device)[:, None]
        sums_ND = features_BSD.new_zeros(B * (words + 1), features_BSD.shape[2])
        sums_ND = sums_ND.index_add(0, rows_BS.flatten(), features_BSD.flatten(0, 1))
        counts_N = features_BSD.new_zeros(len(sums_ND))
        counts_N = counts_N.index_add(0, rows_BS.flatten(), features_BSD.new_ones(B * S))
        means_ND = sums_ND / counts_N.clamp(min=1)[:, None]
        return means_ND.reshape(B, words + 1, -1)[:, :words]

    def _piece(self, ids_BS: Tensor) -> Tensor:
        is_token_BS = ids_BS != PAD
        # a row of padding alone would attend to nothing: it attends to its first column
        seen_BS = is_token_BS.clone()
        seen_BS[:, 0] = True
        features_BSD: Tensor = self.encoder(ids_BS.clamp(min=0), seen_BS)
        return features_BSD * is_token_BS[..., None]
