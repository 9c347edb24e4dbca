"""An encoder network as a masked model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chainrule.arrays import PAD, Array, check_ids
from chainrule.contract.lm import Context, start_token
from chainrule.inference.torch_model import TorchModel
from chainrule.masked.contract import MaskedModel
from chainrule.networks.precision import wide_type
from chainrule.networks.transformer.masked import MaskedTransformer
from chainrule.tokens.base import Tokenizer


class EncoderModel(TorchModel, MaskedModel):
    """A Transformer encoder with a head over the vocabulary, and the tokenizer it was trained with."""

    network: MaskedTransformer

    def __init__(
        self, network: MaskedTransformer, tokenizer: Tokenizer, context: Context, *, kind: str, settings: Any
    ) -> None:
        self.network = network.eval()
        self.tokenizer, self.context = tokenizer, context
        self.kind, self.settings = kind, settings

    @property
    def longest(self) -> int:
        assert self.network.window is not None
        return self.network.window

    @torch.inference_mode()
    def fill(self, ids_BT: Array) -> Tensor:
        ids_BS, features_BSD = self._read(ids_BT)
        features_ND = features_BSD[ids_BS == self.mask]
        logits_NV = self.network.logits(features_ND)
        logits_NV = logits_NV.to(wide_type(logits_NV))
        logits_NV[:, self.tokenizer.bos] = -torch.inf
        # ln p(x) = z_x - ln Σ e^z
        log_probs_NV: Tensor = logits_NV.log_softmax(dim=-1)
        return log_probs_NV

    @torch.inference_mode()
    def features(self, ids_BT: Array) -> Tensor:
        """Return the vector of each token, [B, T, D], for rows as `fill` takes them."""
        return self._read(ids_BT)[1][:, 1:]

    def _read(self, ids_BT: Array) -> tuple[Tensor, Tensor]:
        """Return the ids with the start token before them, and the vector of each."""
        check_ids(ids_BT, self.tokenizer.vocab_size + 1)
        if ids_BT.shape[1] > self.longest:
            raise ValueError(f"a row has at most {self.longest} tokens, not {ids_BT.shape[1]}")
        ids_BT = torch.as_tensor(ids_BT, dtype=torch.int64, device=self.torch_device)
        before_B1 = ids_BT.new_full((len(ids_BT), 1), start_token(self.tokenizer, self.context))
        ids_BS = torch.cat([before_B1, ids_BT], dim=1)
        is_token_BS = ids_BS != PAD
        has_padding = not bool(is_token_BS.all())
        return ids_BS, self.network(ids_BS.clamp(min=0), is_token_BS if has_padding else None)
