"""A network as a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from chainrule.arrays import batches, pad
from chainrule.classification.contract import Classifier
from chainrule.contract.lm import start_token
from chainrule.contract.model import Model
from chainrule.inference.torch_model import TorchModel
from chainrule.networks.classification.classifier import ENCODER, ClassifierNetwork
from chainrule.networks.precision import wide_type
from chainrule.tokens.base import Tokenizer, encode_in_parallel, line_bounds, utf8
from chainrule.training.pretrained import PRETRAINED, tuned

_TOKENS_AT_ONCE = 1 << 14


class NeuralClassifier(TorchModel, Classifier):
    """A network, the tokenizer of its texts, and its labels."""

    network: ClassifierNetwork

    def __init__(
        self,
        network: ClassifierNetwork,
        tokenizer: Tokenizer,
        labels: Tokenizer,
        *,
        kind: str,
        settings: Any,
        pretrained: Any = None,
    ) -> None:
        """`pretrained` is the masked model whose encoder it began from."""
        self.network = network.eval()
        self.tokenizer, self.label_tokenizer = tokenizer, labels
        self.kind, self.settings, self.pretrained = kind, settings, pretrained
        self.start = start_of(tokenizer, pretrained)

    @torch.inference_mode()
    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        ids = encode_in_parallel(self.tokenizer, utf8("\n".join(lines) + "\n"))
        starts, ends = line_bounds(ids, self.tokenizer.eos)
        ends = np.minimum(ends, starts + self.settings.longest)
        found_NK = np.zeros((len(lines), len(self.labels)))
        for some in batches(ends - starts, _TOKENS_AT_ONCE):
            rows = pad([np.r_[self.start, ids[starts[i] : ends[i]].astype(np.int64)] for i in some])
            logits_BK = self.network(torch.from_numpy(rows).to(self.torch_device))
            found_NK[some] = logits_BK.to(wide_type(logits_BK)).log_softmax(dim=-1).cpu().numpy()
        return found_NK

    # -- as any model -------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the weights, without those of a pretrained encoder, which is a part of the folder by itself."""
        arrays = super().tensors()
        if self.pretrained is None:
            return arrays
        return {name: array for name, array in arrays.items() if not name.startswith(ENCODER)}

    def parts(self) -> Mapping[str, Model]:
        """Return the pretrained masked model, with its encoder as it is after training."""
        if self.pretrained is None:
            return {}
        return {PRETRAINED: tuned(self.pretrained, self.network.body.encoder)}


def start_of(tokenizer: Tokenizer, pretrained: Any = None) -> int:
    """Return the token before a text: the one that a pretrained encoder knows there."""
    return start_token(tokenizer, "line" if pretrained is None else pretrained.context or "line")
