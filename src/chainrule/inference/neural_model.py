"""`NeuralModel`: any network as a language model, with the contract implemented once for all of them.

A network turns tokens into features; this module adds <s>, padding, sliding windows, probabilities, and the model
folder. <s> is never predicted: its logit is left out of the softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD, Array, check_ids, to_numpy
from chainrule.contract.capabilities import Capabilities, Choose, Drafted, DraftRules
from chainrule.contract.lm import Context, LanguageModel, State, check_rows, expect_state, start_token
from chainrule.inference.choice_plan import plan_of
from chainrule.inference.gpu.captured import CapturedSteps
from chainrule.inference.gpu.graph_sampling import Scores
from chainrule.inference.gpu.graph_search import Ranking
from chainrule.inference.state import NeuralState, Window, last_window, on_device
from chainrule.inference.torch_model import TorchModel
from chainrule.networks.layers import last_of_rows
from chainrule.networks.loss import nats_of_targets
from chainrule.networks.memory import Memory
from chainrule.networks.network import Network
from chainrule.networks.precision import wide_type
from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.step_on_cpu import TokenChoice
from chainrule.system.devices import has_triton
from chainrule.tokens.base import Tokenizer

TOKENS_AT_ONCE = 1 << 14
"""The most tokens read in one forward pass; more would only take more memory."""
LOGITS_AT_ONCE = 1 << 26
"""The most logits computed at once, vocabulary times tokens."""


class NeuralModel(TorchModel, LanguageModel):
    """A network, the tokenizer it was trained with, and the settings it was made from."""

    explained_by = "chainrule.explanation.networks:explain_network"
    diagnosed_by = "chainrule.explanation.trace:trace_network"
    network: Network

    _scores_by_windows = True
    """True: a network with a window scores by whole windows, which need no memory."""

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        context: Context,
        *,
        kind: str,
        settings: Any,
        slide: float = 0.5,
    ) -> None:
        """`slide` is the share of its tokens that a full window drops for new ones."""
        self.network = network.eval()
        self.tokenizer, self.context = tokenizer, context
        self.kind, self.settings = kind, settings
        window = network.window or 1
        self.slide = min(max(int(window * slide), 1), window)

    def as_torch(self) -> NeuralModel:
        """This model: torch computes it."""
        return self

    # -- the contract -------------------------------------------------------------------------------------

    @torch.inference_mode()
    def start(self, batch_size: int) -> NeuralState:
        return self._after_start(self.network.begin(batch_size), batch_size)

    def _after_start(self, memory: Memory, batch_size: int) -> NeuralState:
        """Return the state after the start token, which is read after the tokens of the memory."""
        size, table = self.network.window, self.network.head.weight
        window = None if size is None else Window.empty(batch_size, size, self.torch_device)
        nothing = NeuralState(memory, table.new_zeros(batch_size, table.shape[1]), window)
        return self._extended(nothing, self._beginning(batch_size), None)

    @torch.inference_mode()
    def extend(self, state: State, ids_BT: Array) -> NeuralState:
        state = expect_state(state, NeuralState)
        check_rows(state, ids_BT)
        ids_BT, is_token_BT = self._checked(ids_BT)
        if not ids_BT.numel():
            return state
        if is_token_BT is None and state.window is not None and state.window.is_uniform:
            state, ids_BT = self._before_last_window(state, state.window, ids_BT)
        return self._extended(state, ids_BT, is_token_BT)

    def _extended(self, state: NeuralState, ids_BT: Tensor, is_token_BT: Tensor | None) -> NeuralState:
        """Return the state after some tokens; a captured step reads a single one, where that takes less time."""
        if self._has_graphs and ids_BT.shape[1] == 1:
            by_graph = self.captured.read_tokens(state, ids_BT, is_token_BT)
            if by_graph is not None:
                return by_graph
        after = state
        for after, _ in self._read(state, ids_BT, is_token_BT):  # noqa: B007 (the last one is returned)
            pass
        return after

    def _before_last_window(self, state: NeuralState, window: Window, ids_BT: Tensor) -> tuple[NeuralState, Tensor]:
        """Return the state and ids to read the last window alone: the tokens before it would be dropped."""
        known_BT = window.ids_BW[:, : window.longest]
        begin = last_window(known_BT.shape[1] + ids_BT.shape[1], window.size, self.slide)
        if begin == 0:
            return state, ids_BT
        empty = Window.empty(len(ids_BT), window.size, self.torch_device)
        nothing = NeuralState(self._restarted(state), state.features_BD, empty)
        return nothing, torch.cat([known_BT, ids_BT], dim=1)[:, begin:]

    @torch.inference_mode()
    def next_log_probs(self, state: State) -> Tensor:
        state = expect_state(state, NeuralState)
        return self._log_probs(state.features_BD)

    @torch.inference_mode()
    def score(self, ids_BT: Array, state: State | None = None) -> Tensor:
        if state is not None:
            check_rows(state, ids_BT)
        ids_BT, is_token_BT = self._checked(ids_BT)
        scores_BT = torch.zeros(ids_BT.shape, device=self.torch_device, dtype=wide_type(self.network.head.weight))
        if ids_BT.numel():
            assert state is None or isinstance(state, NeuralState)
            place = 0
            for features_BTD in self._features_before(ids_BT, is_token_BT, state):
                after = place + features_BTD.shape[1]
                scores_BT[:, place:after] = self._pick(features_BTD, ids_BT[:, place:after])
                place = after
        return scores_BT if is_token_BT is None else torch.where(is_token_BT, scores_BT, 0.0)

    # -- fast paths ---------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """One pass reads and predicts; on a GPU captured steps write; a Transformer reads ahead."""
        offers = {"as_torch", "features", "next_logits", "predictions"}
        if self.network.window is None:
            offers |= {"read"}
        if self._has_graphs:
            offers |= {"search_steps", "write"}
        if self.network.keeps_cache:
            offers |= {"read_ahead"}
            if self._has_loops:
                offers |= {"write"}
            if self._has_graphs and has_triton():
                offers |= {"write_drafted"}
        return Capabilities(frozenset(offers))

    def write(
        self, state: State, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[NeuralState, Tensor, Tensor] | None:
        """Sample by CUDA graphs, on a GPU; or by compiled loops, a Transformer on a CPU; None where these do not.

        Where the window slides on the way, one call writes up to there, and another one goes on.
        """
        state = expect_state(state, NeuralState)
        by_loops = self._has_loops
        write = self._write_by_loops if by_loops else self.captured.write
        if not by_loops and not self.captured.repays(uniforms_BT.shape[1]):
            return None
        active_B, tokens, scores, done, steps = None, [], [], 0, uniforms_BT.shape[1]
        while done < steps:
            count = steps - done
            if state.window is not None and (by_loops or not self.captured.slides):
                with torch.inference_mode():
                    state = self._with_room(state)
                assert state.window is not None
                count = min(count, state.window.size - state.window.longest)
            part = write(state, choose, uniforms_BT[:, done : done + count], read_BT, active_B)
            if part is None:
                return None
            state, tokens_BT, scores_BT = part
            tokens.append(tokens_BT)
            scores.append(scores_BT)
            done += count
            if done < steps:
                last_B = tokens_BT[:, -1]
                active_B = (last_B != PAD) & (last_B != (PAD if choose.end is None else choose.end))
                read_BT = None if read_BT is None else np.concatenate([read_BT, to_numpy(tokens_BT)], axis=1)
        return state, torch.cat(tokens, dim=1), torch.cat(scores, dim=1)

    @torch.inference_mode()
    def _write_by_loops(
        self,
        state: NeuralState,
        choose: Choose,
        uniforms_BT: np.ndarray,
        read_BT: np.ndarray | None = None,
        active_B: Tensor | None = None,
    ) -> tuple[NeuralState, Tensor, Tensor] | None:
        """Sample a token a row for each column, for which the window has room; as `CapturedSteps.write`."""
        plan, network = plan_of(choose), cast(Any, self.network)  # whose type does not say `write`
        if plan is None or plan.penalties or not len(state):
            return None
        assert isinstance(state.memory, Cache) and state.window is not None
        added_V = np.zeros(self.tokenizer.vocab_size, np.float32)
        for token, value in (*((token, -np.inf) for token in plan.forbidden), *plan.bias):
            added_V[token] += value
        codes, values = zip(*plan.operations, strict=True) if plan.operations else ((), ())
        choice = TokenChoice(
            self.tokenizer.bos,
            PAD if plan.end is None else plan.end,
            added_V,
            np.asarray(codes, np.int64),
            np.asarray(values, np.float64),
            np.ascontiguousarray(uniforms_BT),
            np.ones(len(state), np.bool_) if active_B is None else active_B.numpy().copy(),
            np.full(uniforms_BT.shape, PAD),
            np.zeros(uniforms_BT.shape, np.float32),
        )
        written = network.write(state.features_BD, state.memory, choice)
        if written is None:
            return None
        tokens_BT, is_token_BT = torch.from_numpy(choice.tokens_BT), torch.from_numpy(choice.tokens_BT != PAD)
        padding = None if bool(is_token_BT.all()) else is_token_BT
        window = state.window.append(tokens_BT.clamp(min=0), padding)
        features_BD, after = written
        return NeuralState(after, features_BD, window), tokens_BT, torch.from_numpy(choice.scores_BT)

    def search_steps(
        self,
        state: State,
        never: Sequence[int],
        end: int | None,
        live_PW: np.ndarray,
        steps: int,
        take: Callable[[np.ndarray, np.ndarray, np.ndarray], bool],
    ) -> bool | None:
        """Search by CUDA graphs, on a GPU; None as `CapturedSteps.search_steps` says."""
        ranking = Ranking(live_PW.shape[1], tuple(never), end)
        return self.captured.search_steps(expect_state(state, NeuralState), ranking, live_PW, steps, take)

    def write_drafted(
        self, state: State, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
    ) -> Drafted | None:
        """Sample one row with drafts by CUDA graphs, a Transformer on a GPU; None as `CapturedSteps` says."""
        return self.captured.write_drafted(expect_state(state, NeuralState), rules, last, uniforms, most)

    def read_ahead(self, state: State, ids_BT: Array) -> tuple[Tensor, Callable[[int], NeuralState]] | None:
        """Read tokens at once; return their ln p, and a function that cuts the cache after the first n of them.

        None if the network keeps no cache, the tokens have padding, or the window would slide.
        """
        state = expect_state(state, NeuralState)
        check_rows(state, ids_BT)
        if not self.network.keeps_cache or not np.prod(ids_BT.shape):
            return None
        ids_BT, is_token_BT = self._checked(ids_BT)
        window = state.window
        assert window is not None and isinstance(state.memory, Cache)
        if is_token_BT is not None or window.longest + ids_BT.shape[1] > window.size:
            return None
        by_graph = self.captured.read_ahead(state.memory, ids_BT) if self._has_graphs and len(state) == 1 else None
        if by_graph is not None:
            after, features_BTD, log_probs_BTV = by_graph
        else:
            with torch.inference_mode():
                features_BTD, after, _ = self.network(ids_BT, state.memory)
                log_probs_BTV = self._log_probs(features_BTD)
        is_cut = False

        def state_after(n: int) -> NeuralState:
            nonlocal is_cut
            # a cut cache overwrites the dropped tokens when it reads on: so it is cut once
            if is_cut or n == 0:
                return self.extend(state, ids_BT[:, :n])
            is_cut = True
            kept = after.shortened(ids_BT.shape[1] - n)
            return NeuralState(kept, features_BTD[:, n - 1], window.append(ids_BT[:, :n], None))

        return log_probs_BTV, state_after

    @property
    def _has_graphs(self) -> bool:
        """True if CUDA graphs can be used."""
        return self.torch_device.type == "cuda"

    @property
    def _has_loops(self) -> bool:
        """True if compiled loops can write."""
        return self.device == "cpu" and self.dtype == "float32" and not self._has_graphs and self.network.writes

    @cached_property
    def captured(self) -> CapturedSteps:
        """The captured steps of the network."""
        return CapturedSteps(self.network, Scores(self._logits, self._log_probs), self.tokenizer.bos, self.slide)

    def read(self, state: State, ids_BT: Array) -> tuple[Tensor, NeuralState] | None:
        """Return the scores of the ids and the state after them, by one pass; None for a network with a window."""
        if self.network.window is not None or not np.prod(ids_BT.shape):
            check_rows(state, ids_BT)
            return None
        scores_BT, _, after = self.read_features(state, ids_BT)
        return scores_BT, after

    @torch.inference_mode()
    def next_logits(self, state: State) -> Tensor:
        """Return the logits of the next token of each row, [B, V]."""
        return self._logits(expect_state(state, NeuralState).features_BD)

    def features(self, state: State) -> Tensor:
        """Return the features from which the next token of each row is predicted, [B, D]."""
        state = expect_state(state, NeuralState)
        return state.features_BD

    @torch.inference_mode()
    def read_features(self, state: State, ids_BT: Array) -> tuple[Tensor, Tensor, NeuralState]:
        """Return the scores of the ids, the features that predict each, [B, T, D], and the state after them."""
        state = expect_state(state, NeuralState)
        check_rows(state, ids_BT)
        ids_BT, is_token_BT = self._checked(ids_BT)
        features, after = [state.features_BD[:, None][:, :0]], state
        if ids_BT.numel() and self.network.window is None:
            before_BD = state.features_BD
            for after, features_BTD in self._read(state, ids_BT, is_token_BT):  # noqa: B007 (the last is given back)
                features.append(torch.cat([before_BD[:, None], features_BTD[:, :-1]], dim=1))
                before_BD = features_BTD[:, -1]
        elif ids_BT.numel():
            features += self._features_before(ids_BT, is_token_BT, state)
            padded = ids_BT if is_token_BT is None else torch.where(is_token_BT, ids_BT, PAD)
            after = self.extend(state, padded)
        features_BTD = torch.cat(features, dim=1)
        scores_BT = self._pick(features_BTD, ids_BT)
        return scores_BT if is_token_BT is None else torch.where(is_token_BT, scores_BT, 0.0), features_BTD, after

    def predictions(self, state: State, ids_BT: Array) -> Iterator[Tensor]:
        """Yield the distributions before many tokens, from one pass over them."""
        state = expect_state(state, NeuralState)
        check_rows(state, ids_BT)
        ids_BT, is_token_BT = self._checked(ids_BT)
        with torch.inference_mode():
            pieces = list(self._features_before(ids_BT, is_token_BT, state)) if ids_BT.numel() else []
        at_once = max(LOGITS_AT_ONCE // (self.tokenizer.vocab_size * max(len(ids_BT), 1)), 1)
        for features_BTD in pieces:
            for some_BTD in torch.split(features_BTD, at_once, dim=1):
                with torch.inference_mode():
                    log_probs_BTV = self._log_probs(some_BTD)
                yield log_probs_BTV

    def _beginning(self, batch_size: int) -> Tensor:
        """Return the start token of each row, which is read before the first one, as [B, 1]."""
        return torch.full((batch_size, 1), start_token(self.tokenizer, self.context), device=self.torch_device)

    # -- reading ------------------------------------------------------------------------------------------

    def _checked(self, ids_BT: Array) -> tuple[Tensor, Tensor | None]:
        """Return the ids on the device, with token 0 for padding, and the mask of the tokens; None: no padding."""
        on_host = not isinstance(ids_BT, Tensor) or ids_BT.device.type == "cpu"
        if on_host or ids_BT.shape[1] > 1:  # a single step on a device goes unchecked: checks wait for the device
            check_ids(ids_BT, self.tokenizer.vocab_size)
        ids_BT = on_device(ids_BT, self.torch_device)
        is_token_BT = ids_BT != PAD
        if (on_host or ids_BT.shape[1] > 1) and bool(is_token_BT.all()):
            return ids_BT, None
        return torch.where(is_token_BT, ids_BT, 0), is_token_BT

    def _read(
        self, state: NeuralState, ids_BT: Tensor, is_token_BT: Tensor | None
    ) -> Iterator[tuple[NeuralState, Tensor]]:
        """Read the tokens piece by piece; yields the state after each piece, and its features."""
        place, width = 0, ids_BT.shape[1]
        while place < width:
            state = self._with_room(state)
            room = max(TOKENS_AT_ONCE // max(len(ids_BT), 1), 1)
            if state.window is not None:
                room = min(room, state.window.size - state.window.longest)
            after = min(place + room, width)
            piece_BT = ids_BT[:, place:after]
            are_tokens_BT = None if is_token_BT is None else is_token_BT[:, place:after]
            reading = self.network(piece_BT, state.memory, are_tokens_BT)
            window = None if state.window is None else state.window.append(piece_BT, are_tokens_BT)
            lengths_B = None if are_tokens_BT is None else are_tokens_BT.sum(dim=1)
            features_BD = last_of_rows(reading.features_BTD, lengths_B, state.features_BD)
            state = NeuralState(reading.memory, features_BD, window)
            yield state, reading.features_BTD
            place = after

    def _with_room(self, state: NeuralState) -> NeuralState:
        """Return the state with space for a token: a full window drops old tokens and reads the rest again."""
        window = state.window
        if window is None or window.longest < window.size:
            return state
        window = window.counted()
        if window.longest < window.size:
            return replace(state, window=window)
        window = window.slid(self.slide)
        if not window.longest:  # all of it was dropped
            return NeuralState(self._restarted(state), state.features_BD, window)
        ids_BW = window.ids_BW[:, : window.longest]
        is_token_BW = torch.arange(window.longest, device=self.torch_device) < window.lengths_B[:, None]
        reading = self.network(ids_BW, self._restarted(state), None if window.is_uniform else is_token_BW)
        return NeuralState(reading.memory, state.features_BD, window)

    def _restarted(self, state: NeuralState) -> Memory:
        """Return the memory of the state's rows before anything was read."""
        return self.network.begin(len(state))

    def _features_before(
        self, ids_BT: Tensor, is_token_BT: Tensor | None, state: NeuralState | None
    ) -> Iterator[Tensor]:
        """Yield the features from which each token is predicted, in pieces along the time axis."""
        is_uniform = state is None or (state.window is not None and state.window.is_uniform)
        if self.network.window is not None and self._scores_by_windows and is_uniform:
            known_BT = self._beginning(len(ids_BT))
            if state is not None and state.window is not None:
                known_BT = state.window.ids_BW[:, : state.window.longest]
            yield from self._features_by_windows(torch.cat([known_BT, ids_BT[:, :-1]], 1), known_BT.shape[1] - 1)
            return
        state = self.start(len(ids_BT)) if state is None else state
        yield state.features_BD[:, None]
        is_token_BT = None if is_token_BT is None else is_token_BT[:, :-1]
        for _, features_BTD in self._read(state, ids_BT[:, :-1], is_token_BT):
            yield features_BTD

    def _features_by_windows(self, ids_BT: Tensor, first: int) -> Iterator[Tensor]:
        """Yield the features of the indices from `first` on, without memory."""
        for features_BTD in self._all_features_by_windows(ids_BT):
            width = features_BTD.shape[1]
            if first < width:
                yield features_BTD[:, first:]
            first = max(first - width, 0)

    def _all_features_by_windows(self, ids_BT: Tensor) -> Iterator[Tensor]:
        """Yield the features of all indices, piece by piece; many windows are one batch, however small they are."""
        size, slide = self.network.window, self.slide
        assert size is not None
        last, kept = last_window(ids_BT.shape[1], size, slide), size - slide
        step = max(TOKENS_AT_ONCE // (len(ids_BT) * size), 1) * slide
        for begin in range(0, last, step):
            windows_BNW = ids_BT[:, begin : min(begin + step, last) + kept].unfold(1, size, slide)
            features_BNWD = self.network(windows_BNW.flatten(0, 1)).features_BTD.unflatten(0, windows_BNW.shape[:2])
            if begin == 0:
                yield features_BNWD[:, 0, :kept]
            # the window before has read all but the last `slide` indices
            yield features_BNWD[:, :, kept:].flatten(1, 2)
        # the last window may be narrower than the others, and is read by itself
        yield self.network(ids_BT[:, last:]).features_BTD[:, kept if last else 0 :]

    # -- probabilities ------------------------------------------------------------------------------------

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.network.head(features).to(wide_type(self.network.head.weight))
        logits[..., self.tokenizer.bos] = -torch.inf
        return logits

    def _log_probs(self, features: Tensor) -> Tensor:
        # ln p(x) = z_x - ln Σ e^z
        return self._logits(features).log_softmax(dim=-1)

    def _pick(self, features_BTD: Tensor, ids_BT: Tensor) -> Tensor:
        """Return ln p of each id; logits are computed in pieces, since all of them might not fit into memory."""
        flat_ND, flat_N = features_BTD.flatten(0, 1), ids_BT.flatten()
        rows = max(LOGITS_AT_ONCE // self.tokenizer.vocab_size, 1)
        picked = [
            nats_of_targets(self._logits(flat_ND[i : i + rows]), flat_N[i : i + rows])
            for i in range(0, len(flat_N), rows)
        ]
        return -torch.cat(picked).reshape(ids_BT.shape)
