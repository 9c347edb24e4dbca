"""Tuning: a language model that was trained on text learns to reply to prompts.

An example is a prompt in its template, the reply, and the end of the line. The network reads all of it, and the
loss counts the tokens of the reply and the end alone:

    L = -Σ_{t > n} ln p(x_t | x_<t),        where x_1 ... x_n are the tokens of the prompt in its template

Weights, sizes, tokenizer and context are those of the model folder that training begins from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from chainrule.contract.data import Sources, TrainingData
from chainrule.contract.kinds import present_name
from chainrule.contract.lm import start_token
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder, read_folder
from chainrule.networks.settings import TunedSettings
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.text.templates import TEMPLATE
from chainrule.tokens.ids import Encoded
from chainrule.training.engines.base import Engine
from chainrule.training.examples import PairExamples, Texts, size_for
from chainrule.training.layouts import Lines
from chainrule.training.objectives import Feed, NextToken

_OF_THE_RUN = {one.name for base in (TrainingSettings, TunedSettings) for one in fields(base)} | {"slide"}
"""The settings that a tuning has for itself, beside those of its regularisation."""


def begun_from(settings: Any, kind: str) -> ModelFolder | None:
    """Return the model folder that training begins from; None if it begins from random weights."""
    if not isinstance(settings, TunedSettings) or settings.pretrained is None:
        if getattr(settings, "template", None) is not None:
            raise SettingsError("template is for a model that is tuned on prompts and replies: set pretrained=DIR")
        return None
    folder = read_folder(settings.pretrained)
    if present_name(folder.kind) != kind:
        raise SettingsError(
            f"pretrained={settings.pretrained} should be a model of the kind {kind}, not {folder.kind}"
        )
    return folder


def completed(settings: Any, kind: str) -> Any:
    """Return the settings with the sizes, the design and the template of the folder that training begins from."""
    folder = begun_from(settings, kind)
    if folder is None:
        return settings
    earlier: Any = parse(type(settings), folder.config)
    design: dict[str, Any] = {}
    for one in fields(settings):
        if one.name in _OF_THE_RUN or one.metadata.get("group") == "regularisation":
            continue
        design[one.name], given = getattr(earlier, one.name), getattr(settings, one.name)
        if given not in (None, one.default, design[one.name]):
            raise SettingsError(
                f"{one.name}={str(given).lower()} is not that of pretrained={folder.path}, "
                f"{str(design[one.name]).lower()}: leave it out"
            )
    return replace(settings, **design, template=settings.template or earlier.template or TEMPLATE)


@dataclass(frozen=True)
class ReplyExamples(PairExamples):
    """Prompts with their replies, of which the replies are predicted; `targets` are both, and `sources` prompts."""

    IF_TOO_LONG: ClassVar[str] = ""

    @classmethod
    def of(cls, data: TrainingData, targets: Encoded, sources: Encoded) -> Self:
        start = start_token(data.tokenizer, data.context)
        # whatever the context of the model is, a prompt is the first that it reads
        return replace(super().of(data, targets, sources), next_token=NextToken(start, data.tokenizer.eos))

    @property
    def objective(self) -> NextToken:  # type: ignore[override]
        return self.next_token

    @cached_property
    def skips(self) -> np.ndarray:
        """The number of tokens of each prompt, without one that the reply would change."""
        same = []
        for number, (first, last) in enumerate(zip(self.sources.starts, self.sources.ends - 1, strict=True)):
            begin = self.targets.starts[number]
            differs = self.sources.ids[first:last] != self.targets.ids[begin : begin + last - first]
            same.append(int(differs.argmax()) if differs.any() else int(last - first))
        return np.asarray(same, np.int64)

    @property
    def tokens(self) -> int:
        return super().tokens - int(self.skips.sum())

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        size = size_for(int(self.targets.lengths.max()), engine, settings)
        layout = Lines(self.targets.starts, self.targets.ends, 0, size, seed, skips=self.skips)
        return Feed(layout, engine.gatherer(self.targets.ids, self.objective))


def reply_texts(settings: Any, data: TrainingData) -> Texts:
    """Return the prompts and replies of a tuning; those longer than what the network reads at once are left out."""
    if not isinstance(data.sources, Sources):
        raise SettingsError(f"pretrained={settings.pretrained} is tuned on pairs, each a prompt and its reply")
    return ReplyExamples.texts(data, getattr(settings, "window", None), None)


def first_prompt(data: TrainingData) -> str:
    """Return the first held-out prompt, in its template."""
    assert isinstance(data.sources, Sources)
    ids = (data.sources.valid or data.sources.train).ids
    return data.tokenizer.decode(ids[: int((ids == data.tokenizer.eos).argmax())].tolist())
