"""`Mixture`: language models over one vocabulary, and caches, mixed into one language model.

    linear       p(x) = Σ_k w_k p_k(x)
    log-linear   p(x) = Π_k p_k(x)^λ_k / Σ_y Π_k p_k(y)^λ_k

The weights w may depend on the context (gates.py). To score given tokens, a linear mixture needs no more than each
model's probability of those tokens, which each model computes in its own fastest way; a log-linear one needs those
of all tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chainrule.arrays import PAD, Array, array_namespace, check_ids, impossible, placed_like, to_numpy
from chainrule.contract.capabilities import Capabilities, Costs
from chainrule.contract.lm import (
    LanguageModel,
    State,
    check_rows,
    expect_state,
    next_probs,
    offered,
    padded_batches,
    predictions,
    prepare,
    read,
    score_sequences,
)
from chainrule.errors import SettingsError
from chainrule.explanation.mixtures import MixturePart, Weighed
from chainrule.mixtures.caches import Cache, CacheState
from chainrule.mixtures.gates import Floats, Gate, entropies
from chainrule.mixtures.settings import MixtureSettings
from chainrule.mixtures.tuning import mixed_scores

KIND_NAME = "mixture"

_AT_ONCE = 1 << 16  # tokens that are scored at once
_FEATURES_AT_ONCE = 1 << 14  # tokens whose features are kept at once
_LOG_PROBS_AT_ONCE = 1 << 24  # of a log-linear mixture
_PRECISIONS = ("bfloat16", "float32", "float64")


@dataclass(frozen=True)
class MixtureState(State):
    """The state of each model and of each cache, and how many tokens each row has read."""

    states: tuple[State, ...]
    caches: tuple[CacheState, ...]
    read_B: np.ndarray

    def __len__(self) -> int:
        return len(self.read_B)

    def select(self, rows: Array) -> MixtureState:
        return MixtureState(
            tuple(state.select(rows) for state in self.states),
            tuple(cache.select(rows) for cache in self.caches),
            self.read_B[np.asarray(to_numpy(rows), dtype=np.int64)],
        )

    def join(self, other: MixtureState) -> MixtureState:
        return MixtureState(
            tuple(mine.join(theirs) for mine, theirs in zip(self.states, other.states, strict=True)),
            tuple(mine.join(theirs) for mine, theirs in zip(self.caches, other.caches, strict=True)),
            np.concatenate([self.read_B, other.read_B]),
        )

    def keys(self) -> list[Hashable] | None:
        """Return the keys of all parts, with the number of tokens, which a gate may read; None with a cache."""
        keys = [state.keys() for state in self.states]
        if self.caches or any(own is None for own in keys):
            return None
        return list(zip(self.read_B.tolist(), *(own or [] for own in keys), strict=True))


class Columns(NamedTuple):
    """ln p of given tokens by each model and cache, and the numbers that the gate reads."""

    scores: list[Array]
    """ln p of each token, [B, T], by each model and then by each cache."""
    values_BT: np.ndarray
    """The number that the gate reads from the context of each token."""


class Mixture(LanguageModel):
    """A language model that mixes the probabilities of several models."""

    kind = KIND_NAME
    explained_by = "chainrule.explanation.mixtures:explain_mixture"

    def __init__(
        self,
        models: Sequence[LanguageModel],
        settings: MixtureSettings,
        weights_GK: Floats,
        knots: Floats | None = None,
        *,
        caches: Sequence[Cache] | None = None,
    ) -> None:
        """`weights_GK` are the weights at each knot of the gate; `caches` replaces the caches of the settings."""
        self.models, self.settings = tuple(models), settings
        self.tokenizer, self.context = self.models[0].tokenizer, self.models[0].context
        self.gate = Gate(settings.by, settings.of - 1, np.zeros(1) if knots is None else np.asarray(knots))
        size, bos = self.tokenizer.vocab_size, self.tokenizer.bos
        self.caches = tuple(settings.caches(size, bos) if caches is None else caches)
        self.weights_GK = np.asarray(weights_GK, dtype=np.float64)
        assert self.weights_GK.shape == (len(self.gate.knots), len(self.models) + len(self.caches))
        self._needs_features = {cache.of for cache in self.caches if cache.of is not None}

    # -- the contract -------------------------------------------------------------------------------------

    def start(self, batch_size: int) -> MixtureState:
        states = tuple(lm.start(batch_size) for lm in self.models)
        caches = tuple(cache.start(batch_size, self._features(cache, states)) for cache in self.caches)
        return MixtureState(states, caches, np.zeros(batch_size, dtype=np.int64))

    def extend(self, state: State, ids_BT: Array) -> MixtureState:
        state = self._checked(state, ids_BT)
        if not ids_BT.shape[1]:
            return state
        if ids_BT.shape[1] > 1 and self._needs_features:
            for _, _, after in self._pieces(state, ids_BT):
                state = after
            return state
        keys = [self._features(cache, state.states) for cache in self.caches]
        return MixtureState(
            tuple(lm.extend(one, ids_BT) for lm, one in zip(self.models, state.states, strict=True)),
            tuple(
                cache.extend(one, ids_BT, None if key is None else key[:, None])
                for cache, one, key in zip(self.caches, state.caches, keys, strict=True)
            ),
            state.read_B + (to_numpy(ids_BT) != PAD).sum(axis=1),
        )

    def next_log_probs(self, state: State) -> Array:
        state = expect_state(state, MixtureState)
        columns = [self._here(lm.next_log_probs(one)) for lm, one in zip(self.models, state.states, strict=True)]
        if self.settings.form == "log-linear":
            return self._normalised(columns)
        values_B = self._values_of(state, columns)
        for cache, one in zip(self.caches, state.caches, strict=True):
            columns.append(self._here(cache.log_probs(one, self._features(cache, state.states))))
        return self._mixed(columns, self.gate.weights(self.weights_GK, values_B)[:, None])

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        check_ids(ids_BT, self.tokenizer.vocab_size)
        state = self._checked(self.start(len(ids_BT)) if state is None else state, ids_BT)
        return self._read(state, ids_BT, goes_on=False)[0]

    def on(self, device: str, dtype: str = "float32") -> Mixture:
        """Return this mixture with each model on a device; a model that computes on the CPU only stays there."""
        moved = tuple(_moved(lm, device, dtype) for lm in self.models)
        if all(after is before for after, before in zip(moved, self.models, strict=True)):
            return self
        return self.with_models(moved).described_as(self)

    # -- fast paths ---------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """What the mixture offers, and the sum of its parts' costs."""
        parts = [lm.capabilities for lm in self.models]
        costs = sum((part.costs for part in parts), Costs(1e-7, 1e-6, 1e-8 * self.tokenizer.vocab_size))
        offers = {"prepare", "read"}
        if self.settings.form == "linear":
            offers |= {"score_sequences"}
            if self.gate.by != "entropy" and self.device == "cpu":
                offers |= {"next_probs"}
        return Capabilities(frozenset(offers), costs, all(part.is_compiled for part in parts) and not self.caches)

    def prepare(self) -> None:
        """Prepare each model."""
        for lm in self.models:
            prepare(lm)

    def next_probs(self, state: State) -> np.ndarray:
        """Return Σ_k w_k p_k of every token; a linear mixture needs no logarithms for it."""
        state = expect_state(state, MixtureState)
        weights_BK = self.gate.weights(self.weights_GK, self._values_of(state, [])).astype(np.float32)
        parts = [next_probs(lm, one) for lm, one in zip(self.models, state.states, strict=True)]
        for cache, one in zip(self.caches, state.caches, strict=True):
            log_probs_BV = to_numpy(cache.log_probs(one, self._features(cache, state.states)))
            parts.append(np.exp(log_probs_BV.astype(np.float32)))
        total_BV = parts[0] * weights_BK[:, :1]
        for k, part_BV in enumerate(parts[1:], start=1):
            part_BV *= weights_BK[:, k : k + 1]
            total_BV += part_BV
        return np.asarray(total_BV)

    def read(self, state: State, ids_BT: Array) -> tuple[Array, MixtureState] | None:
        """Return the scores of the ids and the state after them, from one pass of each model."""
        return self._read(self._checked(state, ids_BT), ids_BT, goes_on=True)

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        """Score sequences, with each model in its fastest way."""
        if not len(ids):
            return None
        columns_NK, values_N = self.columns(ids, starts, ends)
        mixed = mixed_scores(columns_NK, self.gate.weights(self.weights_GK, values_N))
        return np.where(np.asarray(ids) == self.tokenizer.bos, -np.inf, mixed)

    # -- elsewhere ----------------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        return next((lm.device for lm in self.models if lm.device != "cpu"), "cpu")

    @property
    def dtype(self) -> str:
        """The precision of the least precise model; on the CPU the mixture itself is in double precision."""
        return min((lm.dtype for lm in self.models), key=_PRECISIONS.index)

    def with_models(self, models: Sequence[LanguageModel]) -> Mixture:
        """Return the mixture of other models with these weights."""
        return Mixture(models, self.settings, self.weights_GK, self.gate.knots, caches=self.caches)

    def parts(self) -> Mapping[str, LanguageModel]:
        return {str(number): lm for number, lm in enumerate(self.models, start=1)}

    def tensors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights_GK, "knots": np.asarray(self.gate.knots, dtype=np.float64)}

    def weigh(self, ids: list[int], target: int) -> Weighed:
        """Return the weights after the ids, and ln p of the target by each model and cache."""
        state = self.extend(self.start(1), np.asarray([ids], dtype=np.int64).reshape(1, -1))
        target_BT = np.asarray([[target]], dtype=np.int64)
        columns, _ = self.read_columns(state, target_BT, goes_on=False)
        value = float(columns.values_BT[0, 0])
        caches = ("continuous cache" if cache.is_continuous else "unigram cache" for cache in self.caches)
        names = [*(f"{number}: {lm.kind}" for number, lm in enumerate(self.models, start=1)), *caches]
        weights_K = self.gate.weights(self.weights_GK, columns.values_BT)[0, 0]
        parts = (
            MixturePart(name, float(weight), float(to_numpy(scores_BT)[0, 0]))
            for name, weight, scores_BT in zip(names, weights_K, columns.scores, strict=True)
        )
        log_prob = float(to_numpy(self.score(target_BT, state))[0, 0])
        by = self.gate.by
        return Weighed(self.settings.form, by, None if by == "none" else value, tuple(parts), log_prob)

    # -- what the models say ------------------------------------------------------------------------------

    def columns(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[Floats, Floats]:
        """Return ln p of every id of sequences by each model and cache, [N, K], and the gate's numbers, [N]."""
        columns_NK = np.empty((len(ids), len(self.models) + len(self.caches)))
        values_N = np.zeros(len(ids))
        if not self._needs_features and self.gate.by in ("none", "length"):
            for k, lm in enumerate(self.models):
                columns_NK[:, k] = score_sequences(lm, ids, starts, ends)
            for k, cache in enumerate(self.caches, start=len(self.models)):
                columns_NK[:, k] = cache.score_sequences(ids, starts, ends)
            if self.gate.by == "length":
                values_N[:] = np.arange(len(ids)) - np.repeat(starts, ends - starts)
            return columns_NK, values_N
        for places, ids_BT in padded_batches(ids, starts, ends, _FEATURES_AT_ONCE):
            is_token_BT = ids_BT != PAD
            done = 0
            found_BTK, values_BT = np.zeros((*ids_BT.shape, columns_NK.shape[1])), np.zeros(ids_BT.shape)
            for piece_BT, columns, _ in self._pieces(self.start(len(ids_BT)), ids_BT):
                some = np.s_[:, done : done + piece_BT.shape[1]]
                found_BTK[some] = np.stack([to_numpy(scores) for scores in columns.scores], axis=-1)
                values_BT[some] = columns.values_BT
                done += piece_BT.shape[1]
            columns_NK[places], values_N[places] = found_BTK[is_token_BT], values_BT[is_token_BT]
        return columns_NK, values_N

    def read_columns(self, state: MixtureState, ids_BT: Array, *, goes_on: bool) -> tuple[Columns, MixtureState]:
        """Return ln p of the ids by each model and cache, and the state: after them if it `goes_on`."""
        found = [self._read_model(k, state.states[k], ids_BT, goes_on) for k in range(len(self.models))]
        scores = [scores_BT for scores_BT, _, _ in found]
        caches = []
        for cache, one in zip(self.caches, state.caches, strict=True):
            features_BTD = None if cache.of is None else found[cache.of][1]
            scores.append(cache.scores(one, ids_BT, features_BTD))
            if goes_on:
                caches.append(cache.extend(one, ids_BT, features_BTD))
        columns = Columns(scores, self._gate_values(state, ids_BT))
        if not goes_on:
            return columns, state
        states = tuple(after for _, _, after in found if after is not None)
        return columns, MixtureState(states, tuple(caches), state.read_B + (to_numpy(ids_BT) != PAD).sum(axis=1))

    def _read_model(
        self, k: int, state: State, ids_BT: Array, goes_on: bool
    ) -> tuple[Array, Array | None, State | None]:
        """Return a model's scores of the ids, the features for them if a cache needs those, and its state."""
        lm = self.models[k]
        if k in self._needs_features:
            scores_BT, features_BTD, after = lm.read_features(state, ids_BT)  # type: ignore[attr-defined]
            return scores_BT, features_BTD, after
        if goes_on:
            scores_BT, after = read(lm, state, ids_BT)
            return scores_BT, None, after
        return lm.score(ids_BT, state), None, None

    def _gate_values(self, state: MixtureState, ids_BT: Array) -> Floats:
        """Return the number that the gate reads from the context of each id."""
        lm, one = self.models[self.gate.of], state.states[self.gate.of]
        if self.gate.by == "match":
            lengths_BT: np.ndarray = offered(lm, "match_lengths")(one, ids_BT)[:, :-1]
            return lengths_BT.astype(np.float64)
        if self.gate.by == "entropy":
            blocks = [entropies(block) for block in predictions(lm, one, ids_BT)]
            return np.concatenate(blocks, axis=1) if blocks else np.zeros(ids_BT.shape)
        places_BT: Floats = state.read_B[:, None] + np.arange(ids_BT.shape[1], dtype=np.float64)
        return places_BT

    def _pieces(
        self, state: MixtureState, ids_BT: Array, *, goes_on: bool = True
    ) -> Iterator[tuple[Array, Columns, MixtureState]]:
        """Yield pieces of the ids, with ln p by each model and cache, and the state after each piece."""
        size = _FEATURES_AT_ONCE if self._needs_features else _AT_ONCE
        at_once, width = max(size // max(len(ids_BT), 1), 1), ids_BT.shape[1]
        for first in range(0, width, at_once):
            piece_BT = ids_BT[:, first : first + at_once]
            # the features that a cache keeps are those of the tokens before, so all but the last piece go on
            columns, state = self.read_columns(state, piece_BT, goes_on=goes_on or first + at_once < width)
            yield piece_BT, columns, state

    def _read(self, state: MixtureState, ids_BT: Array, *, goes_on: bool) -> tuple[Array, MixtureState]:
        """Return the scores of the ids, and the state after them; the state before them unless `goes_on`."""
        if self.settings.form == "log-linear":
            return self._read_log_linear(state, ids_BT)
        scores = [self._here(np.zeros((len(ids_BT), 0)))]
        for piece_BT, columns, after in self._pieces(state, ids_BT, goes_on=goes_on):
            weights_BTK = self.gate.weights(self.weights_GK, columns.values_BT)
            mixed_BT = self._mixed([self._here(column) for column in columns.scores], weights_BTK)
            scores.append(self._finished(mixed_BT, piece_BT))
            state = after
        return array_namespace(scores[0]).concat(scores, axis=1), state

    def _read_log_linear(self, state: MixtureState, ids_BT: Array) -> tuple[Array, MixtureState]:
        rows, width = ids_BT.shape
        at_once = max(_LOG_PROBS_AT_ONCE // (max(rows, 1) * self.tokenizer.vocab_size), 1)
        scores = [self._here(np.zeros((rows, 0)))]
        xp = array_namespace(scores[0])
        for first in range(0, width, at_once):
            piece_BT = ids_BT[:, first : first + at_once]
            columns = [
                xp.concat([self._here(block) for block in predictions(lm, one, piece_BT)], axis=1)
                for lm, one in zip(self.models, state.states, strict=True)
            ]
            log_probs_BTV = self._normalised(columns)
            picked = placed_like(np.maximum(to_numpy(piece_BT), 0), log_probs_BTV)[..., None]
            mixed_BT = xp.take_along_axis(log_probs_BTV, picked, axis=-1)[..., 0]
            scores.append(self._finished(mixed_BT, piece_BT))
            state = self.extend(state, piece_BT)
        return xp.concat(scores, axis=1), state

    # -- mixing -------------------------------------------------------------------------------------------

    def _mixed(self, columns: list[Array], weights: Floats) -> Array:
        """Return ln Σ_k w_k p_k; the weights have the axes of the columns, or fewer tokens, and a last axis k."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(weights)
        total = None
        for k, column in enumerate(columns):
            term = column + self._here(log_weights[..., k])
            total = term if total is None else array_namespace(total).logaddexp(total, term)
        return total

    def _normalised(self, columns: list[Array]) -> Array:
        """Return ln of Π_k p_k^λ_k / Z, along the last axis."""
        xp = array_namespace(columns[0])
        products = None
        for weight, column in zip(self.weights_GK[0], columns, strict=True):
            # what a model thinks impossible stays so, also with λ = 0: -inf · 0 would be NaN
            is_possible = xp.isfinite(column)
            term = xp.where(is_possible, xp.where(is_possible, column, 0.0) * float(weight), impossible(column))
            products = term if products is None else products + term
        assert products is not None
        best = xp.max(products, axis=-1, keepdims=True)
        best = xp.where(xp.isfinite(best), best, 0.0)
        # ln Σ_y e^z
        with np.errstate(divide="ignore"):
            return products - (xp.log(xp.sum(xp.exp(products - best), axis=-1, keepdims=True)) + best)

    def _finished(self, mixed_BT: Array, ids_BT: Array) -> Array:
        """Return the scores, with 0 on padding and -inf at <s>."""
        ids_BT = to_numpy(ids_BT)
        xp = array_namespace(mixed_BT)
        is_bos_BT, is_pad_BT = (placed_like(ids_BT == one, mixed_BT) for one in (self.tokenizer.bos, PAD))
        return xp.where(is_pad_BT, 0.0, xp.where(is_bos_BT, impossible(mixed_BT), mixed_BT))

    def _values_of(self, state: MixtureState, columns: list[Array]) -> Floats:
        """Return the number that the gate reads from the context of each row."""
        if self.gate.by == "match":
            match_lengths = offered(self.models[self.gate.of], "match_lengths")
            nothing_B0 = np.zeros((len(state), 0), dtype=np.int64)
            lengths_B: Floats = match_lengths(state.states[self.gate.of], nothing_B0)[:, 0].astype(np.float64)
            return lengths_B
        if self.gate.by == "entropy":
            return entropies(columns[self.gate.of])
        return state.read_B.astype(np.float64)

    def _features(self, cache: Cache, states: Sequence[State]) -> Array | None:
        if cache.of is None:
            return None
        return offered(self.models[cache.of], "features")(states[cache.of])

    def _checked(self, state: State, ids_BT: Array) -> MixtureState:
        state = expect_state(state, MixtureState)
        check_ids(ids_BT, self.tokenizer.vocab_size)
        check_rows(state, ids_BT)
        return state

    def _here(self, array: Array) -> Array:
        """Return an array as it is mixed: on the CPU in NumPy and double precision, else in torch on the device."""
        if self.device == "cpu":
            return to_numpy(array).astype(np.float64, copy=False)
        import torch

        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        return torch.as_tensor(array, dtype=dtype, device=self.device)


def _moved(lm: LanguageModel, device: str, dtype: str) -> LanguageModel:
    try:
        return lm.on(device, dtype)
    except SettingsError:
        if device == "cpu":
            raise
        return lm.on("cpu", dtype)
