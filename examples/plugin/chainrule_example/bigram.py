"""A kind of model from scratch: a bigram table in torch, which computes on any device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD, Array, check_ids
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, LadderEntry
from chainrule.contract.lm import Context, LanguageModel, State, check_rows
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder
from chainrule.settings import parse, setting
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer

NAME = "torch-bigram"


@dataclass(frozen=True)
class BigramSettings:
    """The settings of --set."""

    add: float = setting(0.5, "what is added to the count of every pair")

    def __post_init__(self) -> None:
        if not self.add > 0:
            raise SettingsError(f"add should be above 0, not {self.add}")


@dataclass(frozen=True)
class LastToken(State):
    """The last token of each row, which is the whole context of a bigram model."""

    token_B: Tensor

    def __len__(self) -> int:
        return len(self.token_B)

    def select(self, rows: Array) -> LastToken:
        return LastToken(self.token_B[_ids(rows, self.token_B.device)])

    def join(self, other: LastToken) -> LastToken:
        return LastToken(torch.cat([self.token_B, other.token_B]))


class TorchBigram(LanguageModel):
    """p(x_t | x_<t) = p(x_t | x_{t-1}), read from a table of ln p."""

    kind = NAME

    def __init__(self, table_VV: Tensor, tokenizer: Tokenizer, context: Context, settings: BigramSettings) -> None:
        self.table_VV, self.tokenizer, self.context, self.settings = table_VV, tokenizer, context, settings

    @property
    def device(self) -> str:
        return str(self.table_VV.device)

    @property
    def dtype(self) -> str:
        return str(self.table_VV.dtype).removeprefix("torch.")

    def on(self, device: str, dtype: str = "float32") -> TorchBigram:
        wide = torch.promote_types(getattr(torch, dtype), torch.float32)
        table_VV = self.table_VV.to(device, wide)
        return TorchBigram(table_VV, self.tokenizer, self.context, self.settings).described_as(self)

    def tensors(self) -> dict[str, np.ndarray]:
        return {"table": self.table_VV.cpu().numpy()}

    def start(self, batch_size: int) -> LastToken:
        return LastToken(torch.full((batch_size,), self.tokenizer.bos, device=self.table_VV.device))

    def extend(self, state: State, ids_BT: Array) -> LastToken:
        assert isinstance(state, LastToken)
        check_rows(state, ids_BT)
        check_ids(ids_BT, self.tokenizer.vocab_size)
        both = torch.cat([state.token_B[:, None], _ids(ids_BT, self.table_VV.device)], dim=1)
        last = (both != PAD).sum(dim=1) - 1
        return LastToken(both.gather(1, last[:, None])[:, 0])

    def next_log_probs(self, state: State) -> Tensor:
        assert isinstance(state, LastToken)
        return self.table_VV[state.token_B]

    def score(self, ids_BT: Array, state: State | None = None) -> Tensor:
        check_ids(ids_BT, self.tokenizer.vocab_size)
        ids_BT = _ids(ids_BT, self.table_VV.device)
        state = self.start(len(ids_BT)) if state is None else state
        assert isinstance(state, LastToken)
        check_rows(state, ids_BT)
        before_BT = torch.cat([state.token_B[:, None], ids_BT[:, :-1]], dim=1)[:, : ids_BT.shape[1]]
        scores_BT = self.table_VV[before_BT.clamp(min=0), ids_BT.clamp(min=0)]
        return torch.where(ids_BT == PAD, 0.0, scores_BT)


def _ids(ids: Array, device: torch.device) -> Tensor:
    return torch.as_tensor(ids if isinstance(ids, Tensor) else np.asarray(ids, dtype=np.int64), device=device)


def train(settings: BigramSettings, data: TrainingData) -> TorchBigram:
    """Count pairs of tokens, add `add` to every count, and divide."""
    size, tokenizer = data.tokenizer.vocab_size, data.tokenizer
    counts = torch.full((size, size), settings.add)
    ids = np.asarray(data.train.ids, dtype=np.int64)
    before = np.concatenate([[tokenizer.bos], ids[:-1]])
    if data.context == "line":
        before[before == tokenizer.eos] = tokenizer.bos
    counts.index_put_((torch.as_tensor(before), torch.as_tensor(ids)), torch.ones(len(ids)), accumulate=True)
    counts[:, tokenizer.bos] = 0
    table_VV = (counts / counts.sum(dim=1, keepdim=True)).log().to(data.device)
    return TorchBigram(table_VV, tokenizer, data.context, settings)


def load(folder: ModelFolder) -> TorchBigram:
    """Load the model of a folder."""
    table_VV = torch.from_numpy(folder.tensor("table").copy())
    tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
    return TorchBigram(table_VV, tokenizer, folder.context or "line", parse(BigramSettings, folder.config))


KIND = Kind(
    name=NAME,
    summary="counts of pairs, as a torch table",
    settings=BigramSettings,
    train=train,
    load=load,
    ladder=(LadderEntry("torch bigram", {}),),
    requires_torch=True,
)
