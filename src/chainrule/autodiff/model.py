"""A network on the tape as a language model: the contract in NumPy, without torch.

Nothing is recorded while it scores. <s> is never predicted: its logit is left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.arrays import PAD, check_ids, to_numpy
from chainrule.arrays import Array as AnyArray
from chainrule.autodiff import weights
from chainrule.autodiff.feedforward import TapeFeedforward
from chainrule.autodiff.gradients import Array
from chainrule.autodiff.network import Memory, TapeNetwork
from chainrule.autodiff.nodes import Value
from chainrule.autodiff.recurrent import TapeRecurrent
from chainrule.autodiff.tape import no_grad
from chainrule.devices import has_torch
from chainrule.errors import DamagedFileError, MissingExtraError, ModelError
from chainrule.folder import TENSORS, ModelFolder, write_folder
from chainrule.kinds import find_kind
from chainrule.lm import Context, LanguageModel, State, beginning
from chainrule.neural.designs import FeedforwardConfig
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer

KINDS = ("feedforward", "elman", "lstm", "gru")
"""The kinds that the tape computes."""

TOKENS_AT_ONCE = 1 << 13
"""Read in one go; more would only take more memory."""
LOGITS_AT_ONCE = 1 << 22
"""Computed in one go, vocabulary times tokens."""


@dataclass(frozen=True)
class TapeState(State):
    """What the network remembers, and what it makes of the last token."""

    memory: Memory
    features_BD: Array

    def select(self, rows: AnyArray) -> TapeState:
        rows_B = to_numpy(rows)
        return TapeState(self.memory.select(rows_B), self.features_BD[rows_B])


class TapeModel(LanguageModel):
    """A network, the tokenizer it was trained with, and the settings it was made from."""

    tokens_at_once = TOKENS_AT_ONCE

    def __init__(
        self, network: TapeNetwork, tokenizer: Tokenizer, context: Context, *, kind: str, settings: Any
    ) -> None:
        self.network, self.tokenizer, self.context = network, tokenizer, context
        self.kind, self.settings = kind, settings

    # -- the contract -------------------------------------------------------------------------------------

    def start(self, batch_size: int) -> TapeState:
        with no_grad():
            memory = self.network.begin(batch_size)
        nothing = TapeState(memory, np.zeros((batch_size, 0), np.float32))
        first_B1 = np.full((batch_size, 1), beginning(self.tokenizer, self.context))
        return self._last(nothing, self._read(nothing, first_B1, None))

    def extend(self, state: State, ids_BT: AnyArray) -> TapeState:
        assert isinstance(state, TapeState)
        return self._last(state, self._read(state, *self._checked(ids_BT)))

    def next_log_probs(self, state: State) -> Array:
        assert isinstance(state, TapeState)
        logits_BV = self._logits(state.features_BD)
        # ln p(x) = z_x - ln Σ e^z
        return logits_BV - _log_sum_exp(logits_BV)[:, None]

    def score(self, ids_BT: AnyArray, state: State | None = None) -> Array:
        return self.read(self.start(len(ids_BT)) if state is None else state, ids_BT)[0]

    def read(self, state: State, ids_BT: AnyArray) -> tuple[Array, TapeState]:
        """Scores and the state after, from one pass."""
        assert isinstance(state, TapeState)
        ids_BT, is_token_BT = self._checked(ids_BT)
        scores_BT = np.zeros(ids_BT.shape, np.float32)
        place = 0
        for after, features_BTD in self._read(state, ids_BT, is_token_BT):
            end = place + features_BTD.shape[1]
            # each token is predicted from the features of the one before
            before_BTD = np.concatenate([state.features_BD[:, None], features_BTD[:, :-1]], axis=1)
            scores_BT[:, place:end] = self._pick(before_BTD, ids_BT[:, place:end])
            state, place = after, end
        return scores_BT if is_token_BT is None else np.where(is_token_BT, scores_BT, 0), state

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        write_folder(folder, self.content(), overwrite=overwrite)

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        """This model, which computes on the CPU in float32; elsewhere, or in another precision, the torch model."""
        if (device, dtype) == ("cpu", "float32"):
            return self
        return self.in_torch(f"a network on {device} in {dtype}").on(device, dtype)

    # -- the other engine ---------------------------------------------------------------------------------

    def content(self) -> ModelFolder:
        """What its folder holds."""
        return ModelFolder(
            kind=self.kind,
            config=asdict(self.settings),
            context=self.context,
            tokenizer=dump_tokenizer(self.tokenizer),
            tensors={name: parameter.out_tensor for name, parameter in self.network.parameters.items()},
            provenance=dict(self.provenance),
            metrics=dict(self.metrics),
        )

    def in_torch(self, purpose: str = "a torch model") -> LanguageModel:
        """A torch model of the same weights; where there is no torch, an error says what it is needed for."""
        if not has_torch():
            raise MissingExtraError("torch", "neural", purpose)
        content = self.content()
        lm = find_kind(self.kind).load(replace(content, config={**content.config, "engine": "torch"}))
        lm.provenance, lm.metrics = self.provenance, self.metrics
        return lm

    # -- reading ------------------------------------------------------------------------------------------

    def _checked(self, ids_BT: AnyArray) -> tuple[Array, Array | None]:
        """Ids with padding made some token, and where the tokens are; None if there is no padding."""
        ids_BT = to_numpy(ids_BT)
        check_ids(ids_BT, self.tokenizer.vocab_size)
        is_token_BT = ids_BT != PAD
        if is_token_BT.all():
            return ids_BT.astype(np.int64, copy=False), None
        return np.where(is_token_BT, ids_BT, 0), is_token_BT

    def _read(
        self, state: TapeState, ids_BT: Array, is_token_BT: Array | None
    ) -> Iterator[tuple[TapeState, Array]]:
        """The state after each piece of the tokens, and the features of the piece."""
        size = max(TOKENS_AT_ONCE // max(len(ids_BT), 1), 1)
        for place in range(0, ids_BT.shape[1], size):
            piece_BT = ids_BT[:, place : place + size]
            are_tokens_BT = None if is_token_BT is None else is_token_BT[:, place : place + size]
            with no_grad():
                reading = self.network.read(piece_BT, state.memory, are_tokens_BT)
            features_BTD = reading.features.out_tensor
            state = TapeState(reading.memory, _last_features(features_BTD, are_tokens_BT, state.features_BD))
            yield state, features_BTD

    @staticmethod
    def _last(state: TapeState, pieces: Iterator[tuple[TapeState, Array]]) -> TapeState:
        for after, _ in pieces:
            state = after
        return state

    # -- probabilities ------------------------------------------------------------------------------------

    def _logits(self, features_ND: Array) -> Array:
        """Of the tokens there are; <s> is impossible."""
        with no_grad():
            logits = self.network.logits(Value(features_ND)).out_tensor
        logits_NV = logits[:, : self.tokenizer.vocab_size]
        logits_NV[:, self.tokenizer.bos] = -np.inf
        return logits_NV

    def _pick(self, features_BTD: Array, ids_BT: Array) -> Array:
        """ln p of each id; not all logits at once, which may be more than fits."""
        flat_ND, flat_N = features_BTD.reshape(-1, features_BTD.shape[-1]), ids_BT.reshape(-1)
        picked_N = np.empty(len(flat_N), np.float32)
        rows = max(LOGITS_AT_ONCE // self.tokenizer.vocab_size, 1)
        for low in range(0, len(flat_N), rows):
            some = slice(low, low + rows)
            logits_NV = self._logits(flat_ND[some])
            of_ids_N = np.take_along_axis(logits_NV, flat_N[some, None], axis=1)[:, 0]
            # ln p(x) = z_x - ln Σ e^z
            picked_N[some] = of_ids_N - _log_sum_exp(logits_NV)
        return picked_N.reshape(ids_BT.shape)


def make_network(settings: Any, tokenizer: Tokenizer, tensors: dict[str, Array]) -> TapeNetwork:
    """The network of these settings and tensors, which it trains in place."""
    kind = TapeFeedforward if isinstance(settings, FeedforwardConfig) else TapeRecurrent
    return kind(settings, tokenizer.vocab_size, tokenizer.bos, tensors)


def from_folder(folder: ModelFolder) -> TapeModel:
    """The model of a folder of one of these kinds, whichever engine trained it."""
    tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
    settings: Any = parse(find_kind(folder.kind).settings, folder.config)
    try:
        tensors = weights.checked(settings, tokenizer.vocab_size, folder.tensor)
    except ValueError as error:
        raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
    network = make_network(settings, tokenizer, tensors)
    return TapeModel(network, tokenizer, folder.context, kind=folder.kind, settings=settings)


def as_tape_model(lm: LanguageModel) -> TapeModel:
    """A model on the tape with the weights of this one, if its kind is one of the tape's."""
    if isinstance(lm, TapeModel):
        return lm
    if not isinstance(lm, LanguageModel):
        raise ModelError(f"expected a model, not {lm!r}: load one from its folder first")
    kind = getattr(lm, "kind", "ngram")
    if kind not in KINDS:
        raise ModelError(f"a model of the kind {kind} is not one that the tape computes: {', '.join(KINDS)}")
    content: ModelFolder = lm.content()  # type: ignore[attr-defined]
    made = from_folder(replace(content, config={**content.config, "engine": "tape"}))
    made.provenance, made.metrics = lm.provenance, lm.metrics
    return made


def _last_features(features_BTD: Array, is_token_BT: Array | None, before_BD: Array) -> Array:
    """The features of each row's last token; those from before where a row has none."""
    if is_token_BT is None:
        return features_BTD[:, -1]
    count_B = is_token_BT.sum(axis=1)
    last_BD = features_BTD[np.arange(len(count_B)), np.maximum(count_B - 1, 0)]
    return np.where(count_B[:, None] > 0, last_BD, before_BD)


def _log_sum_exp(logits_NV: Array) -> Array:
    """ln Σ e^z of each row, with the largest taken out so that nothing overflows."""
    best_N1 = logits_NV.max(axis=1, keepdims=True)
    shifted_NV = logits_NV - best_N1
    np.exp(shifted_NV, out=shifted_NV)
    sums_N: Array = np.log(shifted_NV.sum(axis=1)) + best_N1[:, 0]
    return sums_N
