"""A network on the tape as a language model: the contract in NumPy, without torch.

Nothing is recorded on the tape while it scores. <s> is never predicted: its logit is left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from chainrule.arrays import PAD, check_ids, to_numpy
from chainrule.arrays import Array as AnyArray
from chainrule.autodiff import Array, Value, no_grad
from chainrule.autodiff.networks.cache import WindowTokens
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.tape.tape import has_nan, unchecked
from chainrule.contract.capabilities import Capabilities
from chainrule.contract.kinds import (
    check_task,
    find_kind,
    is_kind,
    kind_names,
    load_content,
    present_name,
    read_model,
)
from chainrule.contract.lm import Context, LanguageModel, State, check_rows, expect_state, start_token
from chainrule.errors import ChainruleError, MissingExtraError, ModelError
from chainrule.networks.memory import Memory
from chainrule.networks.settings import EngineSettings
from chainrule.system.devices import IS_ARM, has_torch
from chainrule.system.parallel import cores, worth_a_kernel
from chainrule.tokens.base import Tokenizer

TOKENS_AT_ONCE = 1 << 13
"""The most tokens read in one forward pass: more would take memory and save no time."""
LOGITS_AT_ONCE = 1 << 22
"""The most logits computed at once, vocabulary times tokens."""
_NANOSECONDS = 8  # for the exponential of a logit and its sum by NumPy, on ARM


@dataclass(frozen=True)
class TapeState(State):
    """The memory of the network, and the features of the last token, from which the next one is predicted."""

    memory: Memory
    features_BD: Array

    def __len__(self) -> int:
        return len(self.features_BD)

    def select(self, rows: AnyArray) -> TapeState:
        rows_B = to_numpy(rows)
        return TapeState(self.memory.select(rows_B), self.features_BD[rows_B])

    def join(self, other: TapeState) -> TapeState:
        features_BD = np.concatenate([self.features_BD, other.features_BD])
        return TapeState(self.memory.join(other.memory), features_BD)


class TapeModel(LanguageModel):
    """A network, the tokenizer it was trained with, and the settings it was made from."""

    explained_by = "chainrule.explanation.networks:explain_network"
    diagnosed_by = "chainrule.explanation.trace:trace_network"

    def __init__(
        self,
        network: TapeNetwork,
        tokenizer: Tokenizer,
        context: Context,
        *,
        kind: str,
        settings: Any,
        slide: float = 0.5,
    ) -> None:
        """`slide` is the share of its tokens that a full window drops for new ones."""
        self.network, self.tokenizer, self.context = network, tokenizer, context
        self.kind, self.settings = kind, settings
        window = network.window or 1
        self.slide = min(max(int(window * slide), 1), window)

    # -- the contract -------------------------------------------------------------------------------------

    def start(self, batch_size: int) -> TapeState:
        features = self.network.parameters.get("head.weight", self.network.table).out_tensor.shape[1]
        nothing = TapeState(self._nothing_read(batch_size), np.zeros((batch_size, features), np.float32))
        return self.extend(nothing, np.full((batch_size, 1), start_token(self.tokenizer, self.context)))

    def extend(self, state: State, ids_BT: AnyArray) -> TapeState:
        state, ids_BT, is_token_BT = self._checked(state, ids_BT)
        return [state, *(after for _, after in self._read(state, ids_BT, is_token_BT))][-1]

    def next_log_probs(self, state: State) -> Array:
        state = expect_state(state, TapeState)
        return self._log_probs(state.features_BD)

    def score(self, ids_BT: AnyArray, state: State | None = None) -> Array:
        return self.read(self.start(len(ids_BT)) if state is None else state, ids_BT)[0]

    @property
    def capabilities(self) -> Capabilities:
        """One pass reads and predicts."""
        return Capabilities(frozenset({"as_torch", "features", "next_logits", "predictions", "read"}))

    def read(self, state: State, ids_BT: AnyArray) -> tuple[Array, TapeState]:
        """Return the scores of the ids and the state after them, from one pass: a fast path."""
        scores_BT, _, after = self.read_features(state, ids_BT)
        return scores_BT, after

    def next_logits(self, state: State) -> Array:
        """Return the logits of the next token of each row, [B, V]."""
        return self._logits(expect_state(state, TapeState).features_BD)

    def features(self, state: State) -> Array:
        """Return the features from which the next token of each row is predicted, [B, D]."""
        return expect_state(state, TapeState).features_BD

    def read_features(self, state: State, ids_BT: AnyArray) -> tuple[Array, Array, TapeState]:
        """Return the scores of the ids, the features that predict each, [B, T, D], and the state after them."""
        state, ids_BT, is_token_BT = self._checked(state, ids_BT)
        after, pieces = state, [state.features_BD[:, None][:, :0]]
        for before_BTD, after in self._read(state, ids_BT, is_token_BT):  # noqa: B007 (the last one is returned)
            pieces.append(before_BTD)
        features_BTD = np.concatenate(pieces, axis=1)
        scores_BT = self._pick(features_BTD, ids_BT)
        return scores_BT if is_token_BT is None else np.where(is_token_BT, scores_BT, 0), features_BTD, after

    def predictions(self, state: State, ids_BT: AnyArray) -> Iterator[Array]:
        """Yield the distributions before many tokens, from one pass over them: a fast path."""
        state, ids_BT, is_token_BT = self._checked(state, ids_BT)
        at_once = max(LOGITS_AT_ONCE // (self.tokenizer.vocab_size * max(len(ids_BT), 1)), 1)
        for before_BTD, _ in self._read(state, ids_BT, is_token_BT):
            for first in range(0, before_BTD.shape[1], at_once):
                some_BTD = before_BTD[:, first : first + at_once]
                log_probs_NV = self._log_probs(some_BTD.reshape(-1, some_BTD.shape[2]))
                yield log_probs_NV.reshape(*some_BTD.shape[:2], -1)

    # -- elsewhere ----------------------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        return "float32"

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        """Return this model if it stays on the CPU in float32; a torch model for another device or precision."""
        if (device, dtype) == ("cpu", "float32"):
            return self
        if not has_torch():
            raise MissingExtraError("torch", "neural", f"a network on {device} in {dtype}")
        return in_engine(self, "torch").on(device, dtype)

    def as_torch(self) -> LanguageModel:
        """Return the same network, computed by torch."""
        if not has_torch():
            raise MissingExtraError("torch", "neural", "a network computed by torch")
        return in_engine(self, "torch")

    def token_vectors(self) -> Array:
        """Return the vectors of all tokens, [V, D], without the padding rows of the table."""
        return self.network.table.out_tensor[: self.tokenizer.vocab_size]

    def tensors(self) -> dict[str, Array]:
        return {name: parameter.out_tensor for name, parameter in self.network.parameters.items()}

    # -- reading ------------------------------------------------------------------------------------------

    def _checked(self, state: State, ids_BT: AnyArray) -> tuple[TapeState, Array, Array | None]:
        """Return the state, the ids with token 0 for padding, and the mask of the tokens, None without padding."""
        state = expect_state(state, TapeState)
        check_rows(state, ids_BT)
        ids_BT = to_numpy(ids_BT)
        check_ids(ids_BT, self.tokenizer.vocab_size)
        is_token_BT = ids_BT != PAD
        if is_token_BT.all():
            return state, ids_BT.astype(np.int64, copy=False), None
        return state, np.where(is_token_BT, ids_BT, 0), is_token_BT

    def _read(
        self, state: TapeState, ids_BT: Array, is_token_BT: Array | None
    ) -> Iterator[tuple[Array, TapeState]]:
        """Read the tokens piece by piece.

        Yields the features from which each token of a piece is predicted, those of the token before it, and the
        state after the piece.
        """
        place = 0
        while place < ids_BT.shape[1]:
            memory, size = state.memory, max(TOKENS_AT_ONCE // max(len(ids_BT), 1), 1)
            read: Callable[..., tuple[Array, Any]] = self._features
            if isinstance(memory, WindowTokens):
                memory, read = memory.slid(self.slide), self._read_window
                size = memory.room
                if is_token_BT is None and not self.network.keeps_cache:
                    size = max(size, self._tokens_of_windows(memory, ids_BT.shape[1] - place))
            piece = np.s_[:, place : place + size]
            are_tokens_BT = None if is_token_BT is None else is_token_BT[piece]
            features_BTD, memory = read(ids_BT[piece], memory, are_tokens_BT)
            every_BSD = np.concatenate([state.features_BD[:, None], features_BTD], axis=1)
            # the features of each row's last token are those before if it has none
            last_B = -1 if are_tokens_BT is None else are_tokens_BT.sum(axis=1)
            state = TapeState(memory, every_BSD[np.arange(len(every_BSD)), last_B])
            yield every_BSD[:, :-1], state
            place += size

    def _nothing_read(self, batch_size: int) -> Memory:
        memory, window = self._begin(batch_size), self.network.window
        if window is None:
            return memory
        return WindowTokens(np.zeros((batch_size, window), np.int64), np.zeros(batch_size, np.int64), memory)

    def _begin(self, batch_size: int) -> Memory:
        with unchecked():
            return self.network.begin(batch_size)

    def _read_window(
        self, ids_BT: Array, window: WindowTokens, is_token_BT: Array | None
    ) -> tuple[Array, WindowTokens]:
        """Return the features of tokens that fit into the window, and the window with them."""
        steps, memory = ids_BT.shape[1], window.memory
        if steps > window.room:
            return self._read_windows(ids_BT, window)
        places_BT = window.places(steps)
        window = window.append(ids_BT, steps if is_token_BT is None else is_token_BT.sum(axis=1))
        if memory is not None:
            features_BTD, memory = self._features(ids_BT, memory, is_token_BT)
            return features_BTD, replace(window, memory=memory)
        # the window has slid: the tokens that are left have other positions
        longest = places_BT.max(initial=0) + 1
        is_token_BW = np.arange(longest) < window.lengths_B[:, None]
        every_BTD, memory = self._features(window.ids_BW[:, :longest], self._begin(len(ids_BT)), is_token_BW)
        return np.take_along_axis(every_BTD, places_BT[..., None], axis=1), replace(window, memory=memory)

    def _tokens_of_windows(self, window: WindowTokens, width: int) -> int:
        """Return how many of `width` tokens are read at once by several windows; 0 unless all rows have slid."""
        rows, size = window.ids_BW.shape
        if (window.lengths_B != size - self.slide).any():
            return 0
        at_once = max(TOKENS_AT_ONCE // (max(rows, 1) * size), 1)
        return int(min(width // self.slide, at_once)) * self.slide

    def _read_windows(self, ids_BT: Array, window: WindowTokens) -> tuple[Array, WindowTokens]:
        """Return the features of tokens for several windows, each of which reads `slide` of them, and the last one.

        The windows are one batch, which takes a fraction of the time where they are small.
        """
        rows, size = window.ids_BW.shape
        every_BT = np.concatenate([window.ids_BW[:, : size - self.slide], ids_BT], axis=1)
        windows_BNW = sliding_window_view(every_BT, size, axis=1)[:, :: self.slide]
        features_BWD, memory = self._features(windows_BNW.reshape(-1, size))
        features_BNWD = features_BWD.reshape(*windows_BNW.shape, -1)
        new_BTD = features_BNWD[:, :, -self.slide :].reshape(rows, ids_BT.shape[1], -1)
        last_B = np.arange(1, rows + 1) * windows_BNW.shape[1] - 1
        return new_BTD, WindowTokens(windows_BNW[:, -1].copy(), np.full(rows, size), memory.select(last_B))

    def _features(
        self, ids_BT: Array, memory: Memory | None = None, is_token_BT: Array | None = None
    ) -> tuple[Array, Any]:
        """Return the features of tokens, and the memory after them."""
        with unchecked():
            reading = self.network.read(ids_BT, memory, is_token_BT)
        features_BTD = reading.features.out_tensor
        if has_nan(features_BTD):
            with no_grad():  # which names the first module that makes NaN
                self.network.read(ids_BT, memory, is_token_BT)
        return features_BTD, reading.memory

    def in_window(self, ids: list[int]) -> list[int]:
        """Return the ids of a text that are still in the window when the network predicts the next one."""
        if self.network.window is None:
            return ids
        # the first of the windows [k·slide, k·slide + window) that holds the last id
        slides = -(-max(len(ids) - self.network.window, 0) // self.slide)
        return ids[slides * self.slide :]

    # -- probabilities ------------------------------------------------------------------------------------

    def _logits(self, features_ND: Array) -> Array:
        """Return the logits of every token, without the padding rows of the table; -inf for <s>."""
        with unchecked():
            logits = self.network.logits(Value(features_ND)).out_tensor
        logits_NV = logits[:, : self.tokenizer.vocab_size]
        logits_NV[:, self.tokenizer.bos] = -np.inf
        return logits_NV

    def _log_probs(self, features_ND: Array) -> Array:
        logits_NV = self._logits(features_ND)
        # ln p(x) = z_x - ln Σ e^z
        return logits_NV - _log_sum_exp(logits_NV)[:, None]

    def _pick(self, features_BTD: Array, ids_BT: Array) -> Array:
        """Return ln p of each id; the logits are computed in pieces, since all of them may not fit into memory."""
        flat_ND, flat_N = features_BTD.reshape(-1, features_BTD.shape[-1]), ids_BT.reshape(-1)
        picked_N = np.empty(len(flat_N), np.float32)
        rows = max(LOGITS_AT_ONCE // self.tokenizer.vocab_size, 1)
        by_loops = IS_ARM and worth_a_kernel(len(flat_N) * self.tokenizer.vocab_size, _NANOSECONDS)
        for low in range(0, len(flat_N), rows):
            some = slice(low, low + rows)
            logits_NV = self._logits(flat_ND[some])
            if by_loops:
                from chainrule.networks.loss_on_cpu import nats_of_targets

                picked_N[some] = -nats_of_targets(logits_NV, flat_N[some], cores())
                continue
            of_ids_N = np.take_along_axis(logits_NV, flat_N[some, None], axis=1)[:, 0]
            # ln p(x) = z_x - ln Σ e^z
            picked_N[some] = of_ids_N - _log_sum_exp(logits_NV)
        return picked_N.reshape(ids_BT.shape)


def is_on_tape(kind: str) -> bool:
    """Return True if the tape computes models of a kind, whose settings then choose between engines.

    >>> is_on_tape("lstm"), is_on_tape("ngram")
    (True, False)
    """
    return is_kind(present_name(kind)) and issubclass(find_kind(kind).settings, EngineSettings)


def kinds_on_tape() -> list[str]:
    """Return the kinds of model that the tape computes, also of plug-ins; leave out kinds that cannot be loaded."""
    found = []
    for kind in kind_names():
        with suppress(ChainruleError):
            found += [kind] if is_on_tape(kind) else []
    return found


def in_engine(lm: LanguageModel, engine: str) -> LanguageModel:
    """Return the model with the same weights, computed by `engine`."""
    content = lm.content()
    return cast(LanguageModel, load_content(replace(content, config={**content.config, "engine": engine})))


def load_on_tape(path: str | Path) -> LanguageModel:
    """Return the model of a folder as a network on the tape, whichever engine trained it, without importing torch.

    A model of a kind that the tape does not compute is loaded as always.
    """
    content = read_model(path)
    check_task(content, ["language"])
    if is_on_tape(content.kind):
        content = replace(content, config={**content.config, "engine": "tape"})
    return cast(LanguageModel, load_content(content))


def as_tape_model(lm: LanguageModel) -> TapeModel:
    """Return the model with the same weights on the tape; ModelError if the tape does not compute its kind."""
    if isinstance(lm, TapeModel):
        return lm
    if not is_on_tape(LanguageModel.expect(lm).kind):
        known = ", ".join(kinds_on_tape())
        raise ModelError(f"a model of the kind {lm.kind} is not one that the tape computes: {known}")
    return cast(TapeModel, in_engine(lm, "tape"))


def _log_sum_exp(logits_NV: Array) -> Array:
    """Return ln Σ e^z of each row, with the largest logit factored out so that nothing overflows."""
    best_N1 = logits_NV.max(axis=1, keepdims=True)
    shifted_NV = logits_NV - best_N1
    np.exp(shifted_NV, out=shifted_NV)
    sums_N: Array = np.log(shifted_NV.sum(axis=1)) + best_N1[:, 0]
    return sums_N
