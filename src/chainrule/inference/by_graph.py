"""Writing and reading by CUDA graphs: from a state of a Transformer to the state afterwards, by a captured step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.capabilities import Choose, Drafted, DraftRules
from chainrule.inference.cutting import cutting
from chainrule.inference.gpu.captured import CapturedSteps
from chainrule.inference.gpu.graph_drafting import GraphDrafter
from chainrule.inference.gpu.graph_sampling import MOST_STEPS
from chainrule.inference.state import NeuralState
from chainrule.networks.transformer.cache import Cache

TOKENS_THAT_REPAY = 16
"""How many single tokens are read before a step that reads one is captured."""


def write(
    captured: CapturedSteps, state: NeuralState, choose: Choose, uniforms_BT: np.ndarray
) -> tuple[NeuralState, Tensor, Tensor] | None:
    """The state after a token a row for each column, the tokens, and ln p of each.

    None if the window would slide, or there are more than `MOST_STEPS` columns.
    """
    rows, steps = uniforms_BT.shape
    window, cache = state.window, state.memory
    assert isinstance(cache, Cache) and window is not None
    if window.longest + steps > window.size or steps > MOST_STEPS:
        return None
    with captured.lock:
        written = captured.sampler(rows).write(cache, window, state.features_BD, choose, uniforms_BT)
    return NeuralState(written.cache, written.features_BD, written.window), written.tokens_BT, written.scores_BT


def write_drafted(
    captured: CapturedSteps, state: NeuralState, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
) -> Drafted | None:
    """Write with drafts. Returns None if the window would slide, or a draft has no table of contexts."""
    assert state.window is not None and isinstance(state.memory, Cache)
    window = state.window.counted()
    limit = min(most, GraphDrafter.room(window, rules.tokens))
    with captured.lock:
        drafter = captured.drafter(rules) if limit > 0 and len(state) == 1 else None
        if drafter is None:
            return None
        written = drafter.write(state.memory, window, last, uniforms, limit)
    after = NeuralState(written.cache, written.features_1D, written.window)
    return Drafted(after, written.tokens, written.scores, written.steps, written.drafted)


def read_token(captured: CapturedSteps, state: NeuralState, ids_11: Tensor) -> NeuralState | None:
    """The state after one more token of one row.

    None if the window would slide, or few tokens were read in this way so far: to capture a step takes some time.
    """
    captured.tokens_read += 1
    window = state.window
    assert window is not None
    if captured.tokens_read < TOKENS_THAT_REPAY or window.longest >= window.size:
        return None
    with captured.lock, torch.inference_mode(False):  # the step's arrays are written to outside of this mode, too
        after = read_ahead(captured, state, ids_11)[1](1)
        # a copy, so that threads that only read never share arrays
        return after.select(np.zeros(1, np.int64))


def read_ahead(
    captured: CapturedSteps, state: NeuralState, ids_1T: Tensor
) -> tuple[Tensor, Callable[[int], NeuralState]]:
    """ln p of what follows each of the ids of one row, and the function that cuts the cache after n of them."""
    assert isinstance(state.memory, Cache)
    with captured.lock:
        after, features_1TD, log_probs_1TV = captured.reader(ids_1T.shape[1]).read(state.memory, ids_1T)
    return log_probs_1TV, cutting(state, ids_1T, after, features_1TD)
