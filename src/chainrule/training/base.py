"""A network on a base: it learns what an n-gram model does not predict.

    p(x | x_<t) = e^z_x p_base(x | x_<t) / Σ_y e^z_y p_base(y | x_<t)

z are the logits of the network. They are 0 at first, so training begins with the probabilities of the base. The
finished model is a log-linear mixture of the two, with the exponents 1.

An n-gram model predicts the text that it was counted on far too well, and a network would learn to rely on it. So
the training text is divided into folds, and the base of each fold is counted on the other folds. The base of
held-out text, and of the finished model, is counted on the whole training text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from chainrule.arrays import PAD, to_numpy
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import present_name
from chainrule.contract.lm import predictions
from chainrule.errors import CorpusError, SettingsError
from chainrule.folder import ModelFolder, read_folder
from chainrule.networks.settings import AUTO
from chainrule.networks.training_settings import TrainingSettings
from chainrule.ngram.loading import load_ngram
from chainrule.ngram.ngram_model import KIND_NAME, NgramModel
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.train import train as train_ngram
from chainrule.settings import parse
from chainrule.system.parallel import EMBEDDED
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT
from chainrule.text.overlap import shared, sketches_in
from chainrule.training.engines.base import Engine
from chainrule.training.examples import TextExamples, Texts
from chainrule.training.objectives import Batch, Feed, NextToken, Objective, Stretches

FOLDS = 8
"""The number of parts of the training text; the base of each is counted on the others."""
_NEVER = -1e4  # ln p of a token that the base thinks impossible: -inf would make NaN of gradients


@dataclass(frozen=True, eq=False)
class Base:
    """The n-gram models of a network on a base."""

    lm: NgramModel
    """The base of the finished model, and of held-out text."""
    of_folds: tuple[NgramModel, ...]
    """The base of each fold."""
    folds: np.ndarray
    """The fold of each token of the training text."""


def base_folder(settings: Any) -> ModelFolder | None:
    """Return the folder that the setting `base` names; None if it names none. Refuse other models than n-grams."""
    name = getattr(settings, "base", None)
    if name is None or name == AUTO:
        return None
    folder = read_folder(name)
    if present_name(folder.kind) != KIND_NAME or folder.config.get("smoothing") == "infinite":
        raise SettingsError(f"base={name} should be a model of the kind {KIND_NAME}, not {folder.kind}")
    parse(NgramSettings, folder.config)
    return folder


def base_for(settings: Any, data: TrainingData) -> Base | None:
    """Return the base of a network that is trained on this data; None if it has none."""
    if getattr(settings, "base", None) is None:
        return None
    folder, ngram = base_folder(settings), NgramSettings()
    if folder is not None:
        ngram = replace(parse(NgramSettings, folder.config), extra_words="")  # its tokenizer has them
        texts = [one for one in (data.train, data.valid) if one is not None]
        sketches = sketches_in(folder.provenance)
        if all(one.sketch is not None and shared(one.sketch, sketches) == 0 for one in texts):
            lm = load_ngram(folder)
            _check(lm, data)
            return Base(lm, (lm,), np.zeros(len(data.train.ids), np.uint8))
    ngram.check_trainable()
    plain = replace(data, progress=SILENT, device="cpu", run=None, executor=EMBEDDED)
    ids, folds = np.asarray(data.train.ids), in_folds(np.asarray(data.train.ids), data.tokenizer.eos)

    def counted(some: np.ndarray) -> Any:
        return train_ngram(ngram, replace(plain, train=replace(data.train, ids=some)))

    with data.progress.task("counting the base"):
        lm = counted(ids)
        lm.provenance = data.provenance()
        _check(lm, data)
        return Base(lm, tuple(counted(ids[folds != number]) for number in range(FOLDS)), folds)


def _check(lm: NgramModel, data: TrainingData) -> None:
    if not lm.normalised:
        raise SettingsError(
            "a base gives probabilities; an n-gram model with scores, such as stupid-backoff, does not"
        )
    if lm.context != data.context:
        raise SettingsError(
            f"the context of the base is {lm.context}, not {data.context}: set --context {lm.context}"
        )


def in_folds(ids: np.ndarray, eos: int) -> np.ndarray:
    """Return the fold of each token: each fold is a stretch of whole lines, and all are about equally long.

    >>> in_folds(np.array([5, 0] * 8), 0).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    """
    ends = np.flatnonzero(ids == eos) + 1
    cuts = np.unique(ends[np.searchsorted(ends, np.arange(1, FOLDS) * len(ids) / FOLDS)]) if len(ends) else ends
    if len(cuts) < FOLDS - 1 or cuts[-1] == len(ids):
        raise CorpusError(
            f"a base is counted on parts of the text, {FOLDS} of about equal length: it has too few lines"
        )
    return np.searchsorted(cuts, np.arange(len(ids)), side="right").astype(np.uint8)


def on_base(model: Any, base: Base | None) -> Any:
    """Return the network with its base, as one language model; the network itself if it has none."""
    if base is None:
        return model
    mix = import_object("chainrule.mixtures.mix:mix")  # mixtures stand above training: they hold what it trained
    return mix([model, base.lm], weights=[1.0, 1.0], form="log-linear")


def begin_at_base(tensors: Mapping[str, np.ndarray]) -> None:
    """Let the logits be 0, by the weights of the last layer; a table that is tied to the head stays as it is."""
    for name in ("head.weight", "projection.weight"):
        if name in tensors:
            tensors[name][...] = 0


@dataclass(frozen=True)
class BaseExamples(TextExamples):
    """A text whose tokens are predicted by a network and the base of their fold."""

    models: tuple[NgramModel, ...]
    folds: np.ndarray

    def at(self, places: np.ndarray | slice) -> Self:
        return replace(super().at(places), folds=self.folds[places])

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        assert isinstance(self.objective, NextToken)
        objective = NextTokenOnBase(self.objective, self.ids, self.models, self.folds)
        return Feed(super().feed(engine, settings, seed).layout, engine.gatherer(self.ids, objective))


def base_texts(data: TrainingData) -> Texts:
    """Return the texts of a language model on a base, as examples."""
    base: Base = data.base
    plain = TextExamples.of(data, NextToken.of(data.tokenizer, data.context))

    def with_base(one: Any, models: tuple[NgramModel, ...], folds: np.ndarray) -> BaseExamples:
        return BaseExamples(one.ids, one.eos, one.context, one.objective, models, folds)

    valid: Any = plain.valid
    return Texts(
        with_base(plain.train, base.of_folds, base.folds),
        None if valid is None else with_base(valid, (base.lm,), np.zeros(valid.tokens, np.uint8)),
    )


@dataclass(frozen=True, eq=False)
class NextTokenOnBase(Objective):
    """Predict every token from those before it; inputs are (tokens, ln p of every token by the base, [B, T, V])."""

    next_token: NextToken
    ids: np.ndarray
    models: tuple[NgramModel, ...]
    folds: np.ndarray
    """The number of the model that is the base of each id."""
    name: ClassVar[str] = "next-token-on-base"
    is_on_host: ClassVar[bool] = True

    def batch(self, stretches: Stretches) -> Batch:
        tokens_BT = np.array(stretches.ids_BS)[:, 1:]
        columns_T = np.arange(tokens_BT.shape[1])
        tokens_BT[columns_T >= np.asarray(stretches.lengths_B)[:, None]] = PAD
        inputs_BT, targets_BT = self.next_token.batch(stretches)
        starts_B1 = np.asarray(stretches.starts_B)[:, None]
        folds_BT = np.where(targets_BT == PAD, -1, self.folds.take(starts_B1 + columns_T, mode="clip").astype(int))
        before_BN = self._before(starts_B1)
        base_BTV = np.zeros((*tokens_BT.shape, self.models[0].tokenizer.vocab_size), np.float32)
        for number in np.unique(folds_BT[folds_BT >= 0]):
            rows, lm = np.flatnonzero((folds_BT == number).any(axis=1)), self.models[number]
            state = lm.extend(lm.start(len(rows)), before_BN[rows])
            found_BTV = np.concatenate([to_numpy(one) for one in predictions(lm, state, tokens_BT[rows])], axis=1)
            is_its_BT = folds_BT[rows] == number
            base_BTV[rows] = np.where(is_its_BT[..., None], np.maximum(found_BTV, _NEVER), base_BTV[rows])
        return Batch((inputs_BT, base_BTV), targets_BT)

    def _before(self, starts_B1: np.ndarray) -> np.ndarray:
        """Return the tokens of its sequence before each stretch, as many as n-grams reach back; then PAD."""
        places_BN = starts_B1 + np.arange(1 - self.models[0].settings.order, 0)
        ids_BN = self.ids.take(places_BN, mode="clip").astype(np.int64)
        is_other_BN = places_BN < 0
        if self.next_token.line_end is not None:
            is_end_BN = ids_BN == self.next_token.line_end
            is_other_BN |= np.logical_or.accumulate(is_end_BN[:, ::-1], axis=1)[:, ::-1]
        order_BN = np.argsort(is_other_BN, axis=1, kind="stable")
        return np.take_along_axis(np.where(is_other_BN, PAD, ids_BN), order_BN, axis=1)
