"""The kinds that torch alone computes; `chainrule.autodiff.kinds` has those that the tape computes too.

What a kind is called and can be told needs no torch, whose import takes seconds.
"""

from __future__ import annotations

from typing import Any

from chainrule.devices import has_torch
from chainrule.folder import ModelFolder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.lm import LanguageModel
from chainrule.neural.settings import RUNG, SMALL, AveragingSettings, TransformerSettings

if not has_torch():  # then there are no such kinds, as `find_kind` says
    raise ModuleNotFoundError("torch", name="torch")


def _kind(name: str, summary: str, settings_class: type, rung: Rung) -> Kind:
    def train(settings: Any, data: TrainingData) -> LanguageModel:
        from chainrule.neural.engine import ENGINES

        return ENGINES[name].train(settings, data)

    def load(folder: ModelFolder) -> LanguageModel:
        from chainrule.neural.engine import ENGINES

        return ENGINES[name].load(folder)

    def check(settings: Any, device: str, keeps: bool) -> None:
        from chainrule.neural.engine import check as check_torch

        check_torch(settings, device, keeps)

    return Kind(
        name=name,
        summary=summary,
        settings=settings_class,
        train=train,
        load=load,
        ladder=(rung,),
        tunes_on_held_out=lambda settings: True,
        check=check,
        keeps_run=lambda settings: True,
    )


AVERAGING = _kind(
    "averaging",
    "a bag of words: the mean of the tokens before, whatever their order",
    AveragingSettings,
    Rung("bag of words", {**RUNG, **SMALL}),
)
TRANSFORMER = _kind(
    "transformer",
    "every token looks at those before it",
    TransformerSettings,
    Rung("transformer", {**RUNG, "layers": 2, "width": 128, "window": 128}),
)
