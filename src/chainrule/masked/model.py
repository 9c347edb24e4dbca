"""An encoder network as a masked model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD, Array, check_ids
from chainrule.lm import Context, start_token
from chainrule.masked.contract import MaskedModel
from chainrule.neural.networks.transformer.masked import MaskedTransformer
from chainrule.system.devices import expect_slow_bfloat16
from chainrule.tokens.base import Tokenizer


class EncoderModel(MaskedModel):
    """A Transformer encoder with a head over the vocabulary, and the tokenizer it was trained with."""

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

    @property
    def torch_device(self) -> torch.device:
        """The device of the weights."""
        return self.network.head.weight.device

    @property
    def device(self) -> str:
        return str(self.torch_device)

    @property
    def dtype(self) -> str:
        return str(self.network.head.weight.dtype).removeprefix("torch.")

    def on(self, device: str, dtype: str = "float32") -> EncoderModel:
        """A copy of this model on a device, with weights of that precision; the model itself if nothing changes."""
        if dtype == "bfloat16":
            expect_slow_bfloat16(device)
        like = torch.empty(0, device=device, dtype=getattr(torch, dtype))
        if (like.device, like.dtype) == (self.torch_device, self.network.head.weight.dtype):
            return self
        network = copy.deepcopy(self.network).to(like.device, like.dtype)
        moved = EncoderModel(network, self.tokenizer, self.context, kind=self.kind, settings=self.settings)
        return moved.described_as(self)

    def tensors(self) -> dict[str, np.ndarray]:
        return {name: weight.detach().float().cpu().numpy() for name, weight in self.network.named_parameters()}

    @torch.inference_mode()
    def fill(self, ids_BT: Array) -> Tensor:
        check_ids(ids_BT, self.tokenizer.vocab_size + 1)
        if ids_BT.shape[1] > self.longest:
            raise ValueError(f"a row has at most {self.longest} tokens, not {ids_BT.shape[1]}")
        ids_BT = torch.as_tensor(ids_BT, dtype=torch.int64, device=self.torch_device)
        before_B1 = ids_BT.new_full((len(ids_BT), 1), start_token(self.tokenizer, self.context))
        ids_BS = torch.cat([before_B1, ids_BT], dim=1)
        is_token_BS = ids_BS != PAD
        has_padding = not bool(is_token_BS.all())
        features_BSD = self.network(ids_BS.clamp(min=0), is_token_BS if has_padding else None)
        features_ND = features_BSD[ids_BS == self.mask]
        logits_NV = self.network.head(features_ND)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        logits_NV[:, self.tokenizer.bos] = -torch.inf
        # ln p(x) = z_x - ln Σ e^z
        log_probs_NV: Tensor = logits_NV.log_softmax(dim=-1)
        return log_probs_NV
