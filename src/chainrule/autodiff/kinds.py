"""The kinds that two engines compute: torch, and the tape, which needs none of it.

Both train the same network on the same batches, and one model folder serves both.
"""

from __future__ import annotations

from typing import Any, Literal

from chainrule.autodiff.model import from_folder
from chainrule.autodiff.training import check_offered, train_on_tape
from chainrule.devices import has_torch
from chainrule.errors import MissingExtraError
from chainrule.folder import ModelFolder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.lm import LanguageModel
from chainrule.neural.settings import (
    RUNG,
    SMALL,
    ElmanSettings,
    EngineSettings,
    FeedforwardSettings,
    GruSettings,
    LstmSettings,
)
from chainrule.settings import parse


def _kind(name: str, summary: str, settings_class: type, rung: Rung) -> Kind:
    def train(settings: EngineSettings, data: TrainingData) -> LanguageModel:
        if _engine(settings) == "tape":
            return train_on_tape(name, settings, data)
        from chainrule.neural.engine import ENGINES

        return ENGINES[name].train(settings, data)

    def load(folder: ModelFolder) -> LanguageModel:
        settings: Any = parse(settings_class, folder.config)
        if settings.engine == "tape" or not has_torch():
            return from_folder(folder)
        from chainrule.neural.engine import ENGINES

        return ENGINES[name].load(folder)

    def check(settings: EngineSettings, device: str, keeps: bool) -> None:
        if _engine(settings) == "tape":
            check_offered(settings, device, keeps)
        elif has_torch():
            from chainrule.neural.engine import check as check_torch

            check_torch(settings, device, keeps)
        else:
            raise MissingExtraError("torch", "neural", f"{name} with engine=torch")

    return Kind(
        name=name,
        summary=summary,
        settings=settings_class,
        train=train,
        load=load,
        ladder=(rung,),
        tunes_on_held_out=lambda settings: True,
        check=check,
        keeps_run=lambda settings: _engine(settings) == "torch",
    )


def _engine(settings: EngineSettings) -> Literal["torch", "tape"]:
    if settings.engine == "auto":
        return "torch" if has_torch() else "tape"
    return settings.engine


FEEDFORWARD = _kind(
    "feedforward",
    "the last few tokens as vectors, side by side, and a hidden layer",
    FeedforwardSettings,
    Rung("feed-forward", {**RUNG, **SMALL}),
)
ELMAN = _kind(
    "elman",
    "a recurrent network: one state carries all that was read",
    ElmanSettings,
    Rung("elman", {**RUNG, "layers": 1, **SMALL}),
)
LSTM = _kind(
    "lstm",
    "a recurrent network whose gates decide what to keep",
    LstmSettings,
    Rung("lstm", {**RUNG, "layers": 1, **SMALL}),
)
GRU = _kind(
    "gru",
    "a recurrent network with two gates",
    GruSettings,
    Rung("gru", {**RUNG, "layers": 1, **SMALL}),
)
