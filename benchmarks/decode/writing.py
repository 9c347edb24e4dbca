"""Writing text by networks: strategies, families, beam search, and large Transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import chainrule as cr
from benchmarks.decode.models import random_model
from benchmarks.decode.peers import PROMPT, Task, Write, by_gpt_fast, by_transformers, has_peer, precision
from benchmarks.decode.results import Results
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.seq2seq.translate import translate_texts

STRATEGIES: dict[str, tuple[cr.decode.Strategy, dict[str, Any]]] = {
    "top-k 50": (cr.TopK(50), {"do_sample": True, "top_k": 50}),
    "top-p 0.9": (cr.TopP(0.9), {"do_sample": True, "top_k": 0, "top_p": 0.9}),
    "repetition penalty 1.2, top-k 50": (
        cr.RepetitionPenalty(1.2) | cr.TopK(50),
        {"do_sample": True, "top_k": 50, "repetition_penalty": 1.2},
    ),
    "min-p 0.05": (cr.MinP(0.05), {"do_sample": True, "top_k": 0, "min_p": 0.05}),
    "temperature 0.8": (cr.Temperature(0.8), {"do_sample": True, "top_k": 0, "temperature": 0.8}),
    "greedy": (cr.Greedy(), {"do_sample": False}),
}
"""Our strategies, and the options of transformers that say the same."""
TOP_K = "top-k 50"
LARGE_TEMPERATURE, LARGE_TOP_K = 0.8, 200


def strategies(results: Results) -> None:
    """Measure a Transformer of 41 M parameters with every strategy, alone and 32 at once."""
    lab = results.lab
    config = lab.pick(
        TransformerConfig("gpt2", layers=8, width=512, heads=8, window=1024),
        TransformerConfig("gpt2", layers=2, width=32, heads=4, window=64),
    )
    lm = _transformer(results, config, lab.pick(16_000, 96))
    for rows in (1, lab.pick(32, 3)):
        for name, (strategy, how) in STRATEGIES.items():
            task = Task(name, config, lm.tokenizer.vocab_size, rows, lab.pick(512, 12))
            # a peer's rate does not depend on the length of short texts
            shorter = Task(name, config, task.vocab_size, rows, lab.pick(64, 6))
            peers = _transformers(lambda task=shorter, how=how: by_transformers(lab, task, how))
            beside = "" if name == TOP_K else _with_rows(TOP_K, rows)
            ours = partial(_ours, lm, strategy, rows, task.new_tokens)
            results.measure("strategies", _with_rows(name, rows), ours, peers, rows=rows, beside=beside)


def families(results: Results) -> None:
    """Measure every other family with top-k, alone, 32 and 256 at once."""
    lab = results.lab
    wide: dict[str, Any] = lab.pick(
        {"layers": 2, "hidden": 1024, "embedding": 1024}, {"hidden": 16, "embedding": 16}
    )
    flat: dict[str, Any] = lab.pick({"hidden": 1024, "embedding": 512}, {"hidden": 16, "embedding": 16})
    blocks: dict[str, Any] = lab.pick(
        {"layers": 4, "width": 256, "heads": 4, "window": 256}, {"layers": 1, "width": 16, "heads": 2, "window": 64}
    )
    designs: dict[str, tuple[str, dict[str, Any]]] = {
        "LSTM": ("lstm", wide),
        "GRU": ("gru", wide),
        "Elman": ("elman", wide),
        "feed-forward": ("feedforward", flat),
        "bag of words": ("bagofwords", flat),
        "seq2seq, LSTM": ("seq2seq", {"cell": "lstm", "layers": 2, "width": lab.pick(512, 16)}),
        "seq2seq, Transformer": ("seq2seq", {"cell": "transformer", **blocks}),
    }
    top_k, _ = STRATEGIES[TOP_K]
    for name, (kind, settings) in designs.items():
        lm = random_model(kind, lab.pick(16_000, 96), settings, device=lab.device, dtype=precision(lab))
        for rows in (1, lab.pick(32, 3), lab.pick(256, 5)):
            write = partial(_translated if lm.needs_source else _ours, lm, top_k, rows, lab.pick(128, 8))
            results.measure("families", _with_rows(name, rows), write, rows=rows)


def beam(results: Results) -> None:
    """Measure a beam search of width 4 for 8 prompts of 128 tokens."""
    lab = results.lab
    config = lab.pick(
        TransformerConfig("gpt2", layers=8, width=512, heads=8, window=1024),
        TransformerConfig("gpt2", layers=2, width=32, heads=4, window=64),
    )
    rows, prompt, tokens = lab.pick((8, 128, 128), (2, 8, 6))
    lm = _transformer(results, config, lab.pick(16_000, 96))
    task = Task("beam", config, lm.tokenizer.vocab_size, rows, tokens, tuple(3 + i % 50 for i in range(prompt)))
    peers = _transformers(lambda: by_transformers(lab, task, {"do_sample": False, "num_beams": 4}))
    work = f"Transformer, width 4, {rows} prompts of {prompt} tokens"
    results.measure("beam", work, partial(_ours, lm, cr.Beam(4), rows, tokens, prompt), peers, rows=rows)
    wide: dict[str, Any] = lab.pick(
        {"layers": 2, "hidden": 1024, "embedding": 1024}, {"hidden": 16, "embedding": 16}
    )
    lstm = random_model("lstm", lab.pick(16_000, 96), wide, device=lab.device, dtype=precision(lab))
    ours = partial(_ours, lstm, cr.Beam(4), rows, tokens, prompt)
    results.measure("beam", f"LSTM, width 4, {rows} prompts of {prompt} tokens", ours, rows=rows)


def large(results: Results) -> None:
    """Measure Transformers of 124 M and 1.1 B parameters beside transformers, and at the end beside gpt-fast."""
    lab = results.lab
    tiny: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "window": 64}
    llama = TransformerConfig("llama", layers=22, width=2048, heads=32, kv_heads=4, hidden=5632, window=1024)
    gpt2 = TransformerConfig("gpt2", layers=12, width=768, heads=12, window=1024)
    tasks = [
        Task("GPT-2, 124 M parameters", gpt2, 50_257, 1, 512),
        Task("GPT-2, 124 M parameters, 32 rows", gpt2, 50_257, 32, 512),
        Task("Llama, 1.1 B parameters", llama, 32_000, 1, 512),
    ]
    if lab.small:
        llama, gpt2 = TransformerConfig("llama", kv_heads=2, hidden=48, **tiny), TransformerConfig("gpt2", **tiny)
        tasks = [Task("GPT-2, small, 2 rows", gpt2, 96, 2, 12), Task("Llama, small", llama, 96, 1, 12)]
    how = {"do_sample": True, "temperature": LARGE_TEMPERATURE, "top_k": LARGE_TOP_K}
    strategy = cr.Temperature(LARGE_TEMPERATURE) | cr.TopK(LARGE_TOP_K)
    for task in tasks:
        lm = _transformer(results, task.config, task.vocab_size)
        peers = _transformers(partial(by_transformers, lab, task, how))
        ours = partial(_ours, lm, strategy, task.rows, task.new_tokens)
        results.measure("large", task.name, ours, peers, rows=task.rows)
    checkout = None if results.is_alone else lab.peer("gpt-fast")
    for task in tasks if checkout is not None else ():
        make = partial(by_gpt_fast, lab, checkout, task, LARGE_TEMPERATURE, LARGE_TOP_K)
        results.measure_peer("large", task.name, "gpt-fast", make)


# -- sides ------------------------------------------------------------------------------------------------


def _transformer(results: Results, config: TransformerConfig, vocab_size: int) -> cr.LanguageModel:
    settings = {name: getattr(config, name) for name in ("preset", "layers", "width", "heads", "kv_heads")}
    settings |= {"hidden": config.hidden, "window": config.window}
    lab = results.lab
    return random_model("transformer", vocab_size, settings, device=lab.device, dtype=precision(lab))


def _ours(
    lm: cr.LanguageModel,
    strategy: cr.decode.Strategy | cr.Beam,
    rows: int,
    new_tokens: int,
    prompt: int = len(PROMPT),
) -> Write:
    prompts = [" ".join(f"w{(row + place) % 90}" for place in range(prompt)) for row in range(rows)]

    def write() -> int:
        # without healing, which would add tokens that complete a prompt, all rows have equally many tokens
        texts = cr.generate_many(lm, prompts, strategy, max_tokens=new_tokens, heal=False)
        return sum(found.tokens for found in texts)

    return write


def _translated(lm: Any, strategy: cr.decode.Strategy, rows: int, new_tokens: int) -> Write:
    # a translation has at most twice as many tokens as its source, and 10 more
    sources = [" ".join(f"w{(row + place) % 90}" for place in range(new_tokens // 2)) for row in range(rows)]

    def write() -> int:
        found = translate_texts(lm, sources, strategy, max_tokens=new_tokens)
        return sum(len(best.ids) for best, *_ in found)

    return write


def _transformers(make: Callable[[], Write]) -> dict[str, Callable[[], Write]]:
    """Return the side of transformers, where it is installed."""
    return {"transformers": make} if has_peer("transformers", "transformers") else {}


def _with_rows(name: str, rows: int) -> str:
    return name if rows == 1 else f"{name}, {rows} rows"
