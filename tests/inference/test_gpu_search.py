"""On a GPU, kernels continue the hypotheses of a beam as a search that reads each of them from its beginning."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.decode.models import random_model

from chainrule.arrays import pad, to_numpy
from chainrule.inference.gpu.graph_search import GraphSearch, Ranking, rows_of_search
from chainrule.system.devices import has_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE == "cpu" and not (has_triton() and os.environ.get("TRITON_INTERPRET") == "1"),
        reason="needs a GPU, or Triton and TRITON_INTERPRET=1",
    ),
]
BLOCKS: dict[str, Any] = {"preset": "llama", "layers": 1, "width": 32, "heads": 2, "window": 16}
ROUNDING = {"float32": 0.01, "bfloat16": 0.4}
"""How much ln p may differ from that of a plain reading. (Products of float32 may have 10 bits.)"""
STEPS, NEVER = 5, (1, 6)
PROMPTS = [[5, 8, 9], [7], [6, 5]]


def logs_of_search(lm: Any, width: int) -> np.ndarray:
    """Return the logs of a search by kernels, [steps, rows, 2 W + 2]."""
    state = lm.extend(lm.start(len(PROMPTS)), pad(PROMPTS))
    sampler = lm.captured.sampler(rows_of_search(len(PROMPTS), width), state.memory)
    sampler.has_kernels = True
    search = GraphSearch(sampler, len(PROMPTS), Ranking(width, NEVER, lm.tokenizer.eos))
    assert search.choice is not None
    live_PW = np.full((len(PROMPTS), width), -np.inf)
    live_PW[:, 0] = 0
    logs: list[np.ndarray] = []

    def take(log: np.ndarray) -> bool:
        logs.append(log.copy())
        return len(logs) < STEPS

    search.run(state, live_PW, STEPS, take)
    return np.stack(logs)


@pytest.mark.parametrize("width", [1, 3, 4])
@pytest.mark.parametrize("vocab", [300, 9001])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["transformer", "feedforward", "lstm"])
def test_kernels_continue_the_best_hypotheses(kind: str, dtype: str, vocab: int, width: int) -> None:
    design = BLOCKS if kind == "transformer" else {"hidden": 16, "embedding": 16}
    lm = random_model(kind, vocab, design, spread=4.0).on(DEVICE, dtype)
    with torch.inference_mode(False):
        logs = logs_of_search(lm, width)
    rounding = ROUNDING[dtype]
    hypotheses = [list(prompt) for prompt in PROMPTS for _ in range(width)]
    live_PW = np.full((len(PROMPTS), width), -np.inf)
    live_PW[:, 0] = 0
    for log in logs:
        values_BW, tokens_BW = log[:, :width], log[:, width : 2 * width].astype(int)
        log_probs_BV = to_numpy(lm.next_log_probs(lm.extend(lm.start(len(hypotheses)), pad(hypotheses))))
        np.testing.assert_allclose(log[:, 2 * width], log_probs_BV[:, lm.tokenizer.eos], atol=rounding)
        log_probs_BV[:, NEVER] = -np.inf
        best_BW = -np.sort(-log_probs_BV, axis=1)[:, :width]
        np.testing.assert_allclose(values_BW, best_BW, atol=rounding)
        np.testing.assert_allclose(values_BW, np.take_along_axis(log_probs_BV, tokens_BW, axis=1), atol=rounding)
        assert all(len({*row}) == width for row in tokens_BW) and np.isfinite(log[:, -1]).all()
        total_PN = (live_PW[:, :, None] + values_BW.reshape(len(PROMPTS), width, width)).reshape(len(PROMPTS), -1)
        chosen_PW = np.argsort(-total_PN, axis=1, kind="stable")[:, :width]
        live_PW = np.take_along_axis(total_PN, chosen_PW, axis=1)
        rows_B = (np.arange(len(PROMPTS))[:, None] * width + chosen_PW // width).ravel()
        next_B = np.take_along_axis(tokens_BW.reshape(len(PROMPTS), -1), chosen_PW, axis=1).ravel()
        hypotheses = [[*hypotheses[row], token] for row, token in zip(rows_B, next_B.tolist(), strict=True)]
