"""Sampling with temperature and top k, end to end: text in, text out; weights are random, in bfloat16 on a GPU."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import chainrule as cr
from benchmarks.harness import show
from benchmarks.neural.decoders import TEMPERATURE, TOP_K, Task, Writer, by_gpt_fast, by_transformers
from benchmarks.neural.lab import Lab, ratio
from chainrule.inference.model import NeuralModel
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.tokens.words.tokenizer import WordTokenizer

ROUNDS, LONG_ENOUGH = 3, 10.0
"""How often a side writes, but not once more after so many seconds."""
STRATEGY = cr.Temperature(TEMPERATURE) | cr.TopK(TOP_K)


def run(lab: Lab) -> None:
    sides: dict[str, Callable[[Task], Writer]] = {"chainrule": partial(ours, lab)}
    if importlib.util.find_spec("transformers") is None:
        print("transformers is left out: it is not installed", flush=True)
    else:
        sides["transformers"] = partial(by_transformers, lab)
    checkout = lab.peer("gpt-fast")
    if checkout is not None:
        sides["gpt-fast"] = partial(by_gpt_fast, lab, checkout)
    tasks = _tasks(lab)
    # one side after the other: gpt-fast changes how everything after it is compiled
    rates: dict[tuple[Task, str], float] = {}
    for name, make in sides.items():
        for task in tasks:
            rates[task, name] = _rate(lab, make(task), task)
            print(f"{task.name}: {name} {rates[task, name]:,.0f} tokens/s", flush=True)
    for task in tasks:
        rows = []
        for name in sides:
            rate = rates[task, name]
            compared = "" if name == "chainrule" else ratio(rates[task, "chainrule"], rate)
            rows.append([name, f"{rate:,.0f}", compared])
        show(f"{task.name}: {task.new_tokens} new tokens", ["side", "tokens/s", "ours is"], rows)


def _tasks(lab: Lab) -> list[Task]:
    if lab.small:
        tiny: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "window": 64}
        llama = TransformerConfig("llama", kv_heads=2, hidden=48, **tiny)
        gpt2 = TransformerConfig("gpt2", **tiny)
        return [Task("Llama, small", llama, 96, 1, 12), Task("GPT-2, small, 2 rows", gpt2, 96, 2, 12)]
    llama = TransformerConfig("llama", layers=22, width=2048, heads=32, kv_heads=4, hidden=5632, window=1024)
    gpt2 = TransformerConfig("gpt2", layers=12, width=768, heads=12, window=1024)
    return [
        Task("Llama, 1.1 B parameters", llama, 32_000, 1, 512),
        Task("GPT-2, 124 M parameters", gpt2, 50_257, 1, 512),
        Task("GPT-2, 124 M parameters, 32 rows", gpt2, 50_257, 32, 512),
    ]


def ours(lab: Lab, task: Task) -> Writer:
    """Through `generate_many`."""
    tokenizer = WordTokenizer([f"w{number}".encode() for number in range(task.vocab_size - 3)])
    network = Transformer(task.config, tokenizer.vocab_size, tokenizer.bos)
    model = NeuralModel(network, tokenizer, "stream", kind="transformer", settings=task.config)
    lm = model.on(lab.device, lab.pick("bfloat16", "float32"))
    prompts = [f"w{row} w1 w2" for row in range(task.rows)]

    def write() -> int:
        # the tokens that complete a prompt come before the new ones: without them, every row has equally many
        texts = cr.generate_many(lm, prompts, STRATEGY, max_tokens=task.new_tokens, heal=False)
        return sum(found.tokens for found in texts)

    return Writer(write, warm_up=1)


def _rate(lab: Lab, writer: Writer, task: Task) -> float:
    """Tokens per second of all rows together, the median."""
    expected = task.rows * task.new_tokens
    for _ in range(writer.warm_up):
        found = writer.write()
        assert found == expected, f"{found} tokens were written, not {expected}"
    seconds: list[float] = []
    while len(seconds) < ROUNDS and sum(seconds) < LONG_ENOUGH:
        seconds.append(lab.seconds(writer.write))
    return expected / statistics.median(seconds)
