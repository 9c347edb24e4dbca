"""Writing and scoring by n-gram models on the CPU, and one token of a mixture beside those of its parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.decode.peers import Write, by_llama_cpp, has_peer
from benchmarks.decode.results import OURS, Results, Row
from benchmarks.serve.llama import train_llama
from chainrule.interop.gguf import write_gguf

ORDER, ROWS, TOKENS = 5, 256, 100
TEXT = "builtin:shakespeare"


def ngrams(results: Results) -> None:
    """Measure penalties with top-p alone, 256 rows at once, and scoring beside KenLM."""
    lab = results.lab
    corpus = cr.Corpus.open(TEXT)
    lm = cr.train("ngram", corpus, order=lab.pick(ORDER, 2), tokenizer="bpe", context="stream")
    penalties = cr.RepetitionPenalty(1.2) | cr.TopP(0.9)
    tokens, rows = lab.pick(4000, 20), lab.pick(ROWS, 4)
    results.measure("ngrams", "penalty 1.2, top-p 0.9", partial(_writer, lm, penalties, 1, tokens))
    for name, strategy in {"sample": cr.Sample(), "top-p 0.9": cr.TopP(0.9)}.items():
        ours = partial(_writer, lm, strategy, rows, lab.pick(TOKENS, 8))
        results.measure("ngrams", f"{name}, {rows} rows", ours, rows=rows)
    text = b"".join(corpus.blocks()).decode()
    lines = cr.train("ngram", corpus, order=lab.pick(ORDER, 2), tokenizer="word", context="line")
    results.measure("ngrams", "scoring lines", partial(_scorer, lines, text), _kenlm(lines, text))
    infinite = cr.train("anygram", corpus, tokenizer="word", context="stream")
    results.measure("ngrams", "any length, scoring", partial(_scorer, infinite, text))


def mixture(results: Results) -> None:
    """Measure one token after a prompt that is healed, of a mixture and of each of its parts."""
    lab = results.lab
    corpus, choice = cr.Corpus.open(TEXT), cr.TokenizerChoice("bpe", vocab_size=lab.pick(4096, 300))
    sizes = lab.pick({"hidden": 512, "embedding": 256}, {"hidden": 16, "embedding": 16})
    lstm = cr.train("lstm", corpus, tokenizer=choice, context="stream", steps=1, **sizes)
    how: dict[str, Any] = {"tokenizer": lstm.tokenizer, "context": "stream"}
    ngram = cr.train("ngram", corpus, order=lab.pick(ORDER, 2), **how)
    both = cr.mix([lstm, ngram], weights=[0.5, 0.5])
    for name, lm in {"LSTM": lstm, "5-gram": ngram, "mixture": both}.items():
        results.measure("mixture", name, partial(_writer, lm, cr.Sample(), 1, 1, "To be or not to b", heal=True))
    found = {row.work: row.rate for row in results.rows if row.part == "mixture" and row.side == OURS}
    lstm_rate, ngram_rate = found["LSTM"], found["5-gram"]
    if lstm_rate is not None and ngram_rate is not None:
        results.add(
            Row("mixture", "mixture", "the sum of its parts", "tokens/s", 1 / (1 / lstm_rate + 1 / ngram_rate))
        )


def llama(results: Results) -> None:
    """Measure a Transformer of 10 M parameters on the CPU beside llama.cpp, with the same weights."""
    lab = results.lab
    lm, new_tokens, top_k = train_llama(), lab.pick(200, 8), 50
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(lm, path)
        peers: dict[str, Callable[[], Write]] = {}
        if has_peer("llama.cpp", "llama_cpp"):
            peers["llama.cpp"] = lambda: by_llama_cpp(path, 256, new_tokens, top_k)
        ours = partial(_writer, lm, cr.TopK(top_k), 1, new_tokens)
        results.measure("llama", "Llama, 10 M parameters, on the CPU", ours, peers)


def _writer(
    lm: cr.LanguageModel, strategy: cr.decode.Strategy, rows: int, tokens: int, prompt: str = "", heal: bool = False
) -> Write:
    seeds = iter(range(1 << 30))  # another text every time

    def write() -> int:
        some = cr.generate_many(lm, [prompt], strategy, n=rows, max_tokens=tokens, seed=next(seeds), heal=heal)
        return sum(found.tokens for found in some)

    return write


def _scorer(lm: cr.LanguageModel, text: str) -> Write:
    return lambda: len(lm.surprisals(text))


def _kenlm(lm: Any, text: str) -> dict[str, Callable[[], Write]]:
    """Return the side of KenLM's module, which reads our model as an ARPA file and scores line by line."""
    if not has_peer("KenLM", "kenlm"):
        return {}

    def make() -> Write:
        import kenlm

        with tempfile.TemporaryDirectory() as folder:
            cr.save_arpa(lm, Path(folder) / "model.arpa")
            model = kenlm.Model(str(Path(folder) / "model.arpa"))
        lines = text.splitlines()
        words = sum(len(line.split()) + 1 for line in lines)

        def score() -> int:
            for line in lines:
                model.score(line)
            return words

        return score

    return {"KenLM": make}
