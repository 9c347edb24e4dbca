"""Drafting within a captured step: on any device its text is that of decode/speculative.py, in as many steps."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.contract.capabilities import BestTokens, Capabilities, Drafted, DraftRules
from chainrule.contract.lm import LanguageModel
from chainrule.decode.sample import Choice
from chainrule.folder import Context
from chainrule.inference.gpu.graph_drafting import GraphDrafter
from chainrule.inference.gpu.guess_table import LONGEST, GuessTable, context_hash
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.transformer.cache import Cache
from chainrule.ngram.infinite.suffixes import best_tokens, build
from chainrule.system.devices import has_triton

from . import slow_drafting

LINES = [
    "the cat sat on the mat and the dog sat on the cat",
    "the dog saw the cat and the cat saw the dog",
    "a cat and a dog sat on a mat",
    "on the mat the cat sat and on the mat the dog sat",
] * 3
NETWORK = {
    "layers": 2,
    "width": 32,
    "heads": 4,
    "window": 96,
    "batch": 128,
    "precision": "float32",
    "compile": "no",
}


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch draft: the models of these tests are not on a GPU."""
    monkeypatch.setattr(GraphDrafter, "_guess", slow_drafting.guess)
    monkeypatch.setattr(GraphDrafter, "_keep", slow_drafting.keep)


@cache
def network(context: str = "stream") -> NeuralModel:
    lm = cr.train("transformer", LINES, tokenizer="word", context=context, steps=60, **NETWORK)
    assert isinstance(lm, NeuralModel)
    return lm


@cache
def counted(order: int = 5) -> LanguageModel:
    return cr.train("ngram", LINES, tokenizer=network().tokenizer, context="stream", order=order)


def written(
    lm: LanguageModel, strategy: cr.decode.Strategy, draft: cr.decode.Draft, most: int = 24
) -> list[cr.decode.Generation]:
    return cr.generate_many(
        lm, ["the cat sat", "a", "on the mat the"], strategy, max_tokens=most, seed=3, draft=draft
    )


def record(monkeypatch: pytest.MonkeyPatch) -> list[Drafted | None]:
    """Let the captured step take the place of the host's loop; its answers."""
    answers: list[Drafted | None] = []

    def recorded(self: NeuralModel, *arguments: Any) -> Drafted | None:
        answers.append(self.captured.write_drafted(*arguments))
        return answers[-1]

    monkeypatch.setattr(NeuralModel, "write_drafted", recorded)
    monkeypatch.setattr(NeuralModel, "capabilities", Capabilities(frozenset({"read_ahead", "write_drafted"})))
    return answers


@pytest.mark.parametrize(
    ("strategy", "sources", "tokens"),
    [
        (cr.Greedy(), ("context",), 4),
        (cr.Sample(), ("5-gram",), 4),
        (cr.Temperature(0.7) | cr.TopK(4), ("context", "5-gram"), 1),
        (cr.Greedy(), ("context", "5-gram"), 4),
        (cr.Sample(), ("5-gram", "context"), 1),
    ],
    ids=repr,
)
def test_the_text_is_that_of_the_host(
    strategy: cr.decode.Strategy, sources: tuple[str, ...], tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = cr.decode.Draft(tuple(counted() if name == "5-gram" else name for name in sources), tokens=tokens)
    expected = written(network(), strategy, draft)
    answers = record(monkeypatch)
    found = written(network(), strategy, draft)
    assert any(answer is not None for answer in answers)
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.tokens, one.finished) == (other.text, other.tokens, other.finished)
        assert one.log_prob == pytest.approx(other.log_prob, rel=1e-4)
        # where nothing is known to guess, the captured step guesses that a token repeats, which may be right
        assert one.steps is not None and other.steps is not None and one.steps <= other.steps
        assert sources == ("context",) or one.steps >= other.steps - 2


def test_text_goes_on_beyond_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The captured step ends where the window would slide, and the host goes on from its state."""
    calls = record(monkeypatch)
    for strategy in (cr.Greedy(), cr.Sample()):
        draft = cr.decode.Draft(("context", counted()), tokens=3)
        plain = cr.generate_many(network(), ["the cat"], strategy, max_tokens=130, seed=5)
        found = cr.generate_many(network(), ["the cat"], strategy, max_tokens=130, seed=5, draft=draft)
        assert [one.text for one in found] == [one.text for one in plain]
    assert calls[0] is not None and None in calls and calls[-1] is not None


def test_lines_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = network("line")
    calls = record(monkeypatch)
    plain = cr.generate_many(lm, ["the cat"] * 8, cr.Sample(), max_tokens=40, seed=1)
    found = cr.generate_many(lm, ["the cat"] * 8, cr.Sample(), max_tokens=40, seed=1, draft="context")
    assert [(one.text, one.finished) for one in found] == [(one.text, one.finished) for one in plain]
    assert any(one.finished for one in found) and any(call is not None for call in calls)


def test_the_state_afterwards_is_a_value() -> None:
    lm = network()
    state = lm.extend(lm.start(1), np.asarray([[5, 6, 7]]))
    rules = DraftRules((None, counted()), 3, Choice(cr.Greedy(), None))
    first = lm.captured.write_drafted(state, rules, 8, np.zeros(60), 30)
    assert first is not None
    ids = [8, *first.tokens.tolist()]
    expected = lm.next_log_probs(lm.extend(state, np.asarray([ids[:-1]])))
    torch.testing.assert_close(lm.next_log_probs(first.state), expected, rtol=1e-4, atol=1e-4)
    again = lm.captured.write_drafted(state, rules, 8, np.zeros(60), 30)
    assert again is not None and again.tokens.tolist() == first.tokens.tolist()
    torch.testing.assert_close(lm.next_log_probs(first.state), expected, rtol=1e-4, atol=1e-4)


def test_models_without_a_table_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record(monkeypatch)
    other = cr.train("bagofwords", LINES, tokenizer=network().tokenizer, context="stream", steps=1, embedding=8)
    written(network(), cr.Greedy(), cr.decode.Draft((other,), tokens=3), most=6)
    assert calls and all(call is None for call in calls)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_table_of_an_ngram_model_has_its_drafts(order: int) -> None:
    lm = counted(order)
    table = lm.best_tokens(LONGEST)  # type: ignore[attr-defined]
    assert len(table) == order - 1
    for n, known in enumerate(table, start=1):
        assert known.contexts_CN.shape == (len(known.tokens_C), n) and len(known.tokens_C)
        for context, token in zip(known.contexts_CN[:50], known.tokens_C, strict=False):
            padded = np.full(order - 1, lm.tokenizer.vocab_size)
            padded[order - 1 - n :] = context
            assert lm.draft(padded, np.zeros(0, np.int64), 1)[1].tolist() == [token]  # type: ignore[attr-defined]


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("seed", range(3))
def test_the_table_of_an_anygram_model_has_the_commonest_tokens(context: Context, seed: int) -> None:
    bos, eos, text = 0, 1, [*np.random.default_rng(seed).integers(1, 5, 60).tolist(), 1]
    suffixes = build(np.asarray(text), 5, eos, context)
    table = best_tokens(suffixes, bos, eos if context == "line" else PAD, 3)
    assert len(table) == 3
    if context == "line":
        ends = [i + 1 for i, token in enumerate(text) if token == eos]
        parts = [[bos, *text[i:j]] for i, j in pairwise([0, *ends])]
    else:
        parts = [text[-3:] + text]  # the text is a circle
    for n, known in enumerate(table, start=1):
        counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for part in parts:
            for i in range(n if context == "line" else 3, len(part)):
                counts[tuple(part[i - n : i])][part[i]] += 1
        best = {h: min(c for c in count if count[c] == max(count.values())) for h, count in counts.items()}
        assert dict(zip(map(tuple, known.contexts_CN.tolist()), known.tokens_C.tolist(), strict=True)) == best


def test_a_table_finds_the_longest_context() -> None:
    generator = np.random.default_rng(0)
    contexts = [np.unique(generator.integers(0, 40, (2000, n)), axis=0) for n in range(1, LONGEST + 1)]
    known = [BestTokens(some, generator.integers(0, 40, len(some))) for some in contexts]
    table = GuessTable(known, torch.device("cpu"))
    expected = {
        tuple(c): int(t) for one in known for c, t in zip(one.contexts_CN.tolist(), one.tokens_C, strict=True)
    }
    wrong = 0
    for text in generator.integers(0, 45, (500, LONGEST)).tolist():
        last, count = torch.tensor(text[::-1]), int(generator.integers(1, LONGEST + 1))
        best = next(
            (expected[tuple(text[-n:])] for n in range(count, 0, -1) if tuple(text[-n:]) in expected), text[-1]
        )
        wrong += int(slow_drafting.after(table, last, torch.tensor([count]))) != best
    assert wrong <= 10  # entries of full buckets are dropped
    hashes = np.concatenate([context_hash(some) for some in contexts])
    assert len(np.unique(hashes)) == len(hashes)


@pytest.mark.skipif(
    not torch.cuda.is_available() and not (has_triton() and os.environ.get("TRITON_INTERPRET") == "1"),
    reason="needs a GPU, or Triton and TRITON_INTERPRET=1",
)
@pytest.mark.parametrize("strategy", [cr.Greedy(), cr.Sample(), cr.TopK(4)], ids=repr)
@pytest.mark.parametrize("tokens", [1, 4, 7])
@pytest.mark.parametrize("sources", [("context",), ("5-gram",), ("context", "5-gram")])
def test_kernels_draft_the_same_as_torch(
    strategy: cr.decode.Strategy, tokens: int, sources: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    lm = network().on("cuda" if torch.cuda.is_available() else "cpu")
    assert isinstance(lm, NeuralModel)
    state = lm.extend(lm.start(1), np.asarray([[5, 6, 7, 8, 5, 6]]))
    uniforms = np.random.default_rng(tokens).random(80)
    chosen = tuple(counted() if name == "5-gram" else None for name in sources)
    drafter = lm.captured.drafter(DraftRules(chosen, tokens, Choice(strategy, None)))
    assert drafter is not None and isinstance(state.memory, Cache) and state.window is not None
    found = []
    for is_slow in (False, True):
        if is_slow:
            monkeypatch.setattr(GraphDrafter, "_guess", slow_drafting.guess)
            monkeypatch.setattr(GraphDrafter, "_keep", slow_drafting.keep)
        drafter.pace, drafter._replay = 2.0, drafter._step  # not captured
        found.append(drafter.write(state.memory, state.window, 7, uniforms, 40))
    by_kernels, by_torch = found
    assert by_torch.tokens.tolist() == by_kernels.tokens.tolist() and len(by_torch.tokens) > 5
    assert (by_torch.steps, by_torch.drafted) == (by_kernels.steps, by_kernels.drafted)
    np.testing.assert_allclose(by_torch.log_probs, by_kernels.log_probs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_torch.state.features_BD, by_kernels.state.features_BD, rtol=1e-4, atol=1e-4)
    seen = [one.state.window.ids_BW[0, : one.state.window.longest].tolist() for one in found]
    assert seen[0] == seen[1]
