"""Sampling with temperature and top k, from text to text, with random weights, in bfloat16 on a GPU.

The peers are `generate` of transformers and that of gpt-fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

import chainrule as cr
from benchmarks.harness import is_installed, load_module, show
from benchmarks.neural.lab import Lab, ratio
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.tokens.words.tokenizer import WordTokenizer

TEMPERATURE, TOP_K = 0.8, 200
PROMPT = (3, 4, 5)
ROUNDS, LONG_ENOUGH = 3, 10.0
"""The rounds of a side, which starts no other one after so many seconds."""
STRATEGY = cr.Temperature(TEMPERATURE) | cr.TopK(TOP_K)


@dataclass(frozen=True)
class Task:
    """A network, and the size of the texts that it generates."""

    name: str
    config: TransformerConfig
    vocab_size: int
    rows: int
    new_tokens: int


class Sampler(NamedTuple):
    """A side of the comparison."""

    sample: Callable[[], int]
    """Generates the texts once; returns their number of tokens."""
    warm_up: int
    """The number of calls before it is timed."""


def run(lab: Lab) -> None:
    sides: dict[str, Callable[[Task], Sampler]] = {"chainrule": partial(ours, lab)}
    if is_installed("transformers", "transformers"):
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


def ours(lab: Lab, task: Task) -> Sampler:
    """Return the side of `generate_many`."""
    tokenizer = WordTokenizer([f"w{number}".encode() for number in range(task.vocab_size - 3)])
    network = Transformer(task.config, tokenizer.vocab_size, tokenizer.bos)
    model = NeuralModel(network, tokenizer, "stream", kind="transformer", settings=task.config)
    lm = model.on(lab.device, lab.pick("bfloat16", "float32"))
    prompts = [f"w{row} w1 w2" for row in range(task.rows)]

    def sample() -> int:
        # without healing, which would add tokens that complete a prompt, all rows have equally many tokens
        texts = cr.generate_many(lm, prompts, STRATEGY, max_tokens=task.new_tokens, heal=False)
        return sum(found.tokens for found in texts)

    return Sampler(sample, warm_up=1)


def _rate(lab: Lab, sampler: Sampler, task: Task) -> float:
    """Return the median of tokens per second of all rows together."""
    expected = task.rows * task.new_tokens
    for _ in range(sampler.warm_up):
        found = sampler.sample()
        assert found == expected, f"{found} tokens were generated, not {expected}"
    seconds: list[float] = []
    while len(seconds) < ROUNDS and sum(seconds) < LONG_ENOUGH:
        seconds.append(lab.seconds(sampler.sample))
    return expected / statistics.median(seconds)


# -- peers ------------------------------------------------------------------------------------------------


def by_transformers(lab: Lab, task: Task) -> Sampler:
    """Return the side of transformers, with a model of the same sizes."""
    import transformers

    config, is_llama = task.config, task.config.preset == "llama"
    design = transformers.LlamaConfig if is_llama else transformers.GPT2Config
    # GPT2Config knows these names too
    sizes: dict[str, Any] = {
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "max_position_embeddings": config.window,
        "vocab_size": task.vocab_size,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if is_llama:
        sizes |= {"intermediate_size": config.hidden, "num_key_value_heads": config.kv_heads}
    model: Any = transformers.AutoModelForCausalLM.from_config(design(**sizes))
    model = model.to(lab.device, lab.pick(torch.bfloat16, torch.float32)).eval()
    prompts_BT = torch.tensor([PROMPT] * task.rows, device=lab.device)
    how = {"attention_mask": torch.ones_like(prompts_BT), "max_new_tokens": task.new_tokens, "pad_token_id": 0}
    how |= {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K}

    def sample() -> int:
        ids_BT = model.generate(prompts_BT, **how).tolist()
        return sum(len(row) - len(PROMPT) for row in ids_BT)

    return Sampler(sample, warm_up=1)


def by_gpt_fast(lab: Lab, checkout: Path, task: Task) -> Sampler:
    """Return the side of gpt-fast: its network is a Llama, also where it has as many parameters as GPT-2."""
    config = task.config
    model_file = load_module(checkout / "model.py", "gpt_fast_model")
    tokenizer = ModuleType("tokenizer")  # its own tokenizer needs libraries that this benchmark does not use
    tokenizer.get_tokenizer = None  # type: ignore[attr-defined]
    known = {"model": model_file, "tokenizer": tokenizer}
    program: Any = load_module(checkout / "generate.py", "gpt_fast_generate", known)
    if lab.on_gpu:
        lab.forget_compiled()
        eager = vars(program).setdefault("eager_decode_one_token", program.decode_one_token)
        program.decode_one_token = torch.compile(eager, mode="reduce-overhead", fullgraph=True)
    # with a gate there are three matrices, not two: at 2/3 of the width they have as many parameters
    hidden = config.hidden if config.activation == "swiglu" else config.hidden * 2 // 3
    sizes = model_file.ModelArgs(
        block_size=config.window,
        vocab_size=padded_size(task.vocab_size),
        n_layer=config.layers,
        n_head=config.heads,
        dim=config.width,
        intermediate_size=hidden,
        n_local_heads=config.kv_heads,
    )
    model = model_file.Transformer(sizes).to(lab.device, lab.pick(torch.bfloat16, torch.float32)).eval()
    prompt_T = torch.tensor(PROMPT, dtype=torch.int, device=lab.device)

    def sample() -> int:
        ids_BT, _ = program.generate(
            model,
            prompt_T,
            task.new_tokens,
            batch_size=task.rows,
            interactive=False,
            draft_model=None,
            temperature=TEMPERATURE,
            top_k=TOP_K,
        )
        return sum(len(row) - len(PROMPT) for row in ids_BT.tolist())

    return Sampler(sample, warm_up=2)
