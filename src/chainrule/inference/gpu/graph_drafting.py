"""Speculative decoding on a GPU by a CUDA graph: guessing, reading, choosing and keeping are one captured step.

A step of a small network takes the GPU a third of a millisecond. A host that guesses tokens, sends them, waits for
their probabilities and decides needs several times as long. So guesses come from the text itself or from a hash
table of contexts, both on the device, and the host looks at the text every few steps.

The result is that of decode/speculative.py: at each place a token is chosen by the random number of that place,
and a guess is right if it is that token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.capabilities import LONGEST_MATCH, SHORTEST_MATCH, Choose, Drafted
from chainrule.inference.gpu.choice import FusedChoice, StepBuffers
from chainrule.inference.gpu.graph_sampling import GraphSampler, RowReader
from chainrule.inference.gpu.guess_table import FACTORS, MIXER, PRINT_BITS, SEED, SLOTS, GuessTable
from chainrule.inference.gpu.step import power_of_two
from chainrule.inference.state import NeuralState, Window
from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.devices import current_device

MOST_STEPS = 16
"""The most steps between two looks of the host."""


class Guesses(NamedTuple):
    """The sources of guesses."""

    copies: bool
    """True: guesses are copied from the text, where its last tokens stood before."""
    table: GuessTable | None
    """Contexts to look up where nothing is copied."""
    tokens: int
    """The number of tokens that are guessed at once."""


class DraftBuffers(NamedTuple):
    """The arrays of a captured step, at fixed addresses; T counts guesses and one more, N new tokens."""

    text_W: Tensor
    """The tokens that the network has read, the one that waits to be read, and guesses."""
    status_6: Tensor
    """Length (tokens that were read), column (tokens written), active (0 or 1), limit, steps, drafted tokens."""
    uniforms_N: Tensor
    tokens_N: Tensor
    scores_N: Tensor
    last_D: Tensor
    """The features of the last token that was read and kept."""
    ids_T: Tensor
    """The tokens to read."""
    places_T: Tensor


class GraphDrafter:
    """The captured step of one network, one source of guesses and one choice; its cache is that of a sampler."""

    def __init__(self, network: Transformer, sampler: GraphSampler, guesses: Guesses, choose: Choose) -> None:
        self.sampler, self.guesses, self.choose = sampler, guesses, choose
        self.reader = RowReader(network, sampler, guesses.tokens + 1)
        weight, T = network.head.weight.detach(), guesses.tokens + 1
        size, device = network.config.window + 2 * T, weight.device
        # T rows, each of which chooses one token
        self.rows = StepBuffers.of_size(T, 1, 1, weight)
        whole: dict[str, Any] = {"dtype": torch.int64, "device": device}
        self.buffers = DraftBuffers(
            text_W=torch.zeros(size, **whole),
            status_6=torch.zeros(6, **whole),
            uniforms_N=torch.zeros(size, dtype=torch.float64, device=device),
            tokens_N=torch.zeros(size, **whole),
            scores_N=torch.zeros(size, dtype=self.rows.scores_BT.dtype, device=device),
            last_D=torch.zeros_like(weight[0]),
            ids_T=torch.zeros(T, **whole),
            places_T=torch.zeros(T, **whole),
        )
        plan = sampler.plan(choose)
        self.fused_choice = None if plan is None else FusedChoice(plan, network.head, self.rows, sampler.bos)
        self.pace = float(T) / 2
        """The expected number of tokens that a step writes."""
        with torch.no_grad(), current_device(device):
            self._replay = sampler.capture(self._step, T)

    @staticmethod
    def room(window: Window, tokens: int) -> int:
        """Return the number of tokens that fit into the window, with `tokens` guesses in each step."""
        return window.size - window.longest - 2 * tokens - 1

    @torch.no_grad()
    def write(self, cache: Cache, window: Window, last: int, uniforms: np.ndarray, limit: int) -> Drafted:
        """Take some steps, until there are `limit` tokens; `last` is the token that is not read yet."""
        with current_device(self.buffers.text_W.device):
            buffer = self.sampler.cache.adopt(cache, 1)
            length = window.longest
            self._begin(window, last, uniforms[: limit + self.guesses.tokens + 1], limit)
            for _ in range(max(min(MOST_STEPS, round(limit / self.pace)), 1)):
                self._replay()
            buffer.version += 1
            after, count, _, _, steps, drafted = self.buffers.status_6.tolist()
            self.pace = 0.5 * self.pace + 0.5 * count / steps
            lengths_1 = torch.full_like(cache.lengths_B, after)
            ids_1W = self.buffers.text_W[None, : window.size].clone()
            longest = cache.longest + after - length
            kept = Cache(buffer, buffer.version, lengths_1, longest, cache.is_uniform, cache.window)
            tokens = self.buffers.tokens_N[:count].cpu().numpy()
            scores = self.buffers.scores_N[:count].cpu().numpy()
            seen = Window(ids_1W, lengths_1, after, True)
            state = NeuralState(kept, self.buffers.last_D[None].clone(), seen)
            return Drafted(state, tokens, scores, steps, drafted)

    def _begin(self, window: Window, last: int, uniforms: np.ndarray, limit: int) -> None:
        text_W, status_6 = self.buffers.text_W, self.buffers.status_6
        text_W[: window.size] = window.ids_BW[0]
        text_W[window.longest] = last
        status_6.copy_(torch.tensor([window.longest, 0, 1, limit, 0, 0]))
        self.buffers.uniforms_N[: len(uniforms)] = torch.from_numpy(uniforms).to(text_W.device)

    def _step(self) -> None:
        """Guess, read, choose and keep; all results stay in place."""
        buffers, rows = self.buffers, self.rows
        self._guess()
        rows.features_BD.copy_(self.reader.features(buffers.ids_T, buffers.places_T))
        if self.fused_choice is not None:
            self.fused_choice.from_features()
        else:
            log_probs_TV = self.sampler.scores.log_probs(rows.features_BD)
            tokens_T, scores_T, active_T = self.choose(log_probs_TV, rows.uniforms_BT[:, 0], rows.active_B)
            rows.tokens_BT[:, 0], rows.scores_BT[:, 0] = tokens_T, scores_T.to(rows.scores_BT.dtype)
            rows.active_B.copy_(active_T)
        self._keep()

    def _guess(self) -> None:
        """Write guesses after the text, the tokens to read, and the random numbers to choose by."""
        from chainrule.inference.gpu import draft_kernels as kernels

        buffers, rows, (copies, table, K) = self.buffers, self.rows, self.guesses
        entries, mask = (buffers.status_6, 0) if table is None else (table.entries, table.mask)
        kernels.guess[(1,)](
            buffers.text_W, buffers.status_6, entries, buffers.uniforms_N, buffers.ids_T, buffers.places_T,
            rows.uniforms_BT, rows.active_B, mask, K, power_of_two(K + 1), power_of_two(len(buffers.text_W)),
            copies, table is not None, SHORTEST_MATCH, LONGEST_MATCH, SLOTS, *FACTORS[1:], SEED, MIXER,
            (1 << PRINT_BITS) - 1, num_warps=4,
        )  # fmt: skip

    def _keep(self) -> None:
        """Keep the guesses up to the first that was not chosen, and the token that was chosen there."""
        from chainrule.inference.gpu import draft_kernels as kernels

        buffers, rows, K = self.buffers, self.rows, self.guesses.tokens
        width = len(buffers.last_D)
        kernels.keep[(1,)](
            buffers.text_W, buffers.status_6, buffers.ids_T, rows.tokens_BT, rows.scores_BT, rows.active_B,
            rows.features_BD, buffers.tokens_N, buffers.scores_N, buffers.last_D, K, power_of_two(K + 1), width,
            power_of_two(width), num_warps=1,
        )  # fmt: skip
