"""Sampling: tokens a second, one sequence alone and 256 at once, beside the plain way, KenLM and NLTK.

The plain way works for every model: it computes the probabilities of all tokens and applies the strategy. KenLM's
module cannot sample, so its side asks `BaseScore` for every word and draws one. NLTK's side is `generate`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import numpy as np

import chainrule as cr
from benchmarks.harness import is_installed, show, timed
from benchmarks.ngram.lab import Lab, has_kenlm
from benchmarks.ngram.nltk_peer import first_lines, train_nltk
from chainrule.decode.sample import Choice, sample_after

ORDER, ROWS = 5, 256
TOKENS, TOKENS_PER_ROW, PLAIN_TOKENS, PEER_TOKENS = 20_000, 100, 50, 10
STRATEGIES: dict[str, cr.decode.Strategy] = {
    "sample": cr.Sample(),
    "greedy": cr.Greedy(),
    "temperature 0.8": cr.Temperature(0.8),
    "top-k 50": cr.TopK(50),
    "top-p 0.9": cr.TopP(0.9),
    "min-p 0.05": cr.MinP(0.05),
    "0.8, top-k 50, top-p 0.9": cr.Temperature(0.8) | cr.TopK(50) | cr.TopP(0.9),
    "penalty 1.2, top-p 0.9": cr.RepetitionPenalty(1.2) | cr.TopP(0.9),
}
CHOICES = {
    "BPE, 8,192": cr.TokenizerChoice("bpe", vocab_size=8192),
    "words": cr.TokenizerChoice("word", vocab_size=100_000),
}


def run(lab: Lab) -> None:
    corpus = cr.Corpus.open(str(lab.text))
    for name, choice in CHOICES.items():
        lm = cr.train("ngram", corpus, order=ORDER, tokenizer=choice, context="stream")
        rows = [[strategy, *_figures(lm, STRATEGIES[strategy])] for strategy in STRATEGIES]
        title = f"{name}, vocabulary {lm.tokenizer.vocab_size:,}, order {ORDER}: tokens/s (per CPU second)"
        show(title, ["strategy", "one, at first", "one, again", f"{ROWS} rows, again", "the plain way"], rows)
    _peers(lab)


def _figures(lm: cr.LanguageModel, strategy: cr.decode.Strategy) -> list[str]:
    """Return rates of one sequence, of another with lists that the first cached, of many rows, of the plain way."""
    lm = lm.on("cpu")
    vars(lm).pop("_sampler", None)  # and the lists that it cached
    sample_after(lm, [[]], strategy, max_tokens=2_000)  # loads the kernels
    vars(lm).pop("_sampler", None)
    prompts: list[list[int]] = [[]] * ROWS
    one, again = (
        _rate(partial(sample_after, lm, [[]], strategy, max_tokens=TOKENS, seed=seed), TOKENS) for seed in (1, 2)
    )
    _, rows = (
        _rate(
            partial(sample_after, lm, prompts, strategy, max_tokens=TOKENS_PER_ROW, seed=seed),
            ROWS * TOKENS_PER_ROW,
        )
        for seed in (3, 4)
    )
    return [one, again, rows, _rate(lambda: _sample_plain(lm, strategy), PLAIN_TOKENS)]


def _sample_plain(lm: cr.LanguageModel, strategy: cr.decode.Strategy) -> None:
    choose, state, uniforms = Choice(strategy, None), lm.start(1), np.random.default_rng(0).random(PLAIN_TOKENS)
    read = np.zeros((1, 0), np.int64)
    for uniform in uniforms:
        tokens, _, _ = choose(lm.next_log_probs(state), uniform[None], np.ones(1, bool), lambda read=read: read)
        read = np.concatenate([read, tokens[:, None]], axis=1)
        state = lm.extend(state, tokens[:, None])


def _rate(work: Callable[[], object], tokens: int) -> str:
    seconds, cpu = timed(work)
    return f"{tokens / seconds:,.0f} ({tokens / cpu:,.0f})"


def _peers(lab: Lab) -> None:
    rows = []
    if has_kenlm("lmplz", "build_binary", module=True):
        rows.append(["KenLM, BaseScore for every word", _kenlm_rate(lab)])
    if is_installed("NLTK", "nltk", extra="benchmarks"):
        model = train_nltk(first_lines(lab))
        rate = _rate(lambda: model.generate(PEER_TOKENS, random_seed=0), PEER_TOKENS)
        rows.append(["NLTK, generate, order 3, 1,000 lines", rate])
    if rows:
        show("peers: tokens/s, and per CPU second in brackets", ["peer", "one sequence"], rows)


def _kenlm_rate(lab: Lab) -> str:
    import kenlm

    model = kenlm.Model(str(lab.theirs("probing")[0]))
    with lab.text.open(encoding="utf-8") as file:
        words = sorted({word for line in file for word in line.split()})

    def write() -> None:
        state, after, numbers = kenlm.State(), kenlm.State(), random.Random(0)
        model.BeginSentenceWrite(state)
        for _ in range(PEER_TOKENS):
            weights = [math.pow(10, model.BaseScore(state, word, after)) for word in words]
            model.BaseScore(state, numbers.choices(words, weights)[0], after)
            state, after = after, state

    return _rate(write, PEER_TOKENS)
