"""A kind of model in torch, as small as can be: it shows that the contract serves both array libraries.

It is registered by the tests as any new kind would be: by the name of its module. Where there is a GPU it lives
there, and decoding must follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chainrule.arrays import PAD, Array, check_ids
from chainrule.folder import ModelFolder, write_folder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.lm import LanguageModel, State
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def to_device(ids: Array) -> torch.Tensor:
    return torch.as_tensor(ids if isinstance(ids, torch.Tensor) else np.asarray(ids, dtype=np.int64), device=DEVICE)


@dataclass(frozen=True)
class Settings:
    add: float = 0.5


@dataclass(frozen=True)
class LastToken(State):
    token_B: torch.Tensor

    def select(self, rows: Array) -> LastToken:
        return LastToken(self.token_B[to_device(rows)])


class TorchBigram(LanguageModel):
    def __init__(self, table_VV: torch.Tensor, tokenizer: Any, context: Any) -> None:
        self.table_VV, self.tokenizer, self.context = table_VV, tokenizer, context

    def start(self, batch_size: int) -> LastToken:
        return LastToken(torch.full((batch_size,), self.tokenizer.bos, device=DEVICE))

    def extend(self, state: State, ids_BT: Array) -> LastToken:
        check_ids(ids_BT, self.tokenizer.vocab_size)
        ids_BT = to_device(ids_BT)
        both = torch.cat([state.token_B[:, None], ids_BT], dim=1)
        last = (both != PAD).sum(dim=1) - 1
        return LastToken(both[torch.arange(len(both), device=DEVICE), last])

    def next_log_probs(self, state: State) -> Array:
        return self.table_VV[state.token_B]

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        check_ids(ids_BT, self.tokenizer.vocab_size)
        ids_BT = to_device(ids_BT)
        state = self.start(len(ids_BT)) if state is None else state
        before_BT = torch.cat([state.token_B[:, None], ids_BT[:, :-1]], dim=1)[:, : ids_BT.shape[1]]
        scores_BT = self.table_VV[before_BT.clamp(min=0), ids_BT.clamp(min=0)]
        return torch.where(ids_BT == PAD, 0.0, scores_BT)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        parts = ModelFolder(
            kind=KIND.name,
            config={},
            context=self.context,
            tokenizer=dump_tokenizer(self.tokenizer),
            tensors={"table": self.table_VV.cpu().numpy()},
            provenance=self.provenance,
            metrics=self.metrics,
        )
        write_folder(folder, parts, overwrite=overwrite)


def train(settings: Settings, data: TrainingData) -> TorchBigram:
    size, tokenizer = data.tokenizer.vocab_size, data.tokenizer
    counts = torch.full((size, size), settings.add)
    ids = np.asarray(data.train.ids, dtype=np.int64)
    before = np.concatenate([[tokenizer.bos], ids[:-1]])
    if data.context == "line":
        before[before == tokenizer.eos] = tokenizer.bos
    counts.index_put_((torch.as_tensor(before), torch.as_tensor(ids)), torch.ones(len(ids)), accumulate=True)
    counts[:, tokenizer.bos] = 0
    return TorchBigram((counts / counts.sum(dim=1, keepdim=True)).log().to(DEVICE), tokenizer, data.context)


def load(folder: ModelFolder) -> TorchBigram:
    table = torch.from_numpy(folder.tensor("table").copy()).to(DEVICE)
    return TorchBigram(table, parse_tokenizer(folder.tokenizer, str(folder.path)), folder.context)


KIND = Kind(
    name="torch-bigram",
    summary="counts of pairs, as a torch table",
    settings=Settings,
    train=train,
    load=load,
    ladder=(Rung("torch bigram", {}),),
)
