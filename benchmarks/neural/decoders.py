"""How peers write text: transformers' `generate`, and gpt-fast's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from benchmarks.neural.lab import Lab
from benchmarks.neural.peers import load_module
from chainrule.networks.config import padded_size
from chainrule.networks.transformer.config import TransformerConfig

TEMPERATURE, TOP_K = 0.8, 200
PROMPT = (3, 4, 5)


@dataclass(frozen=True)
class Task:
    """A network, and what it writes."""

    name: str
    config: TransformerConfig
    vocab_size: int
    rows: int
    new_tokens: int


class Writer(NamedTuple):
    """Something that writes texts."""

    write: Callable[[], int]
    """Writes them once; how many tokens there are."""
    warm_up: int
    """How often it should have been called before it is timed."""


def by_transformers(lab: Lab, task: Task) -> Writer:
    """`generate` of a model of the same sizes."""
    import transformers

    config = task.config
    model: Any
    sizes: dict[str, Any] = {"vocab_size": task.vocab_size, "bos_token_id": None, "eos_token_id": None}
    if config.preset == "llama":
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                hidden_size=config.width,
                intermediate_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                max_position_embeddings=config.window,
                **sizes,
            )
        )
    else:
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_embd=config.width, n_layer=config.layers, n_head=config.heads, n_positions=config.window, **sizes
            )
        )
    model = model.to(lab.device, lab.pick(torch.bfloat16, torch.float32)).eval()
    prompts_BT = torch.tensor([PROMPT] * task.rows, device=lab.device)
    how = {
        "attention_mask": torch.ones_like(prompts_BT),
        "do_sample": True,
        "temperature": TEMPERATURE,
        "top_k": TOP_K,
        "max_new_tokens": task.new_tokens,
        "pad_token_id": 0,
    }

    def write() -> int:
        ids_BT = model.generate(prompts_BT, **how).tolist()
        return sum(len(row) - len(PROMPT) for row in ids_BT)

    return Writer(write, warm_up=1)


def by_gpt_fast(lab: Lab, checkout: Path, task: Task) -> Writer:
    """Its `generate` and its network, a Llama; of GPT-2's size it has as many parameters, in its own design."""
    config = task.config
    model_file = load_module(checkout / "model.py", "gpt_fast_model")
    tokenizer = ModuleType("tokenizer")  # its own needs libraries that nothing here uses
    tokenizer.get_tokenizer = None  # type: ignore[attr-defined]
    known = {"model": model_file, "tokenizer": tokenizer}
    program: Any = load_module(checkout / "generate.py", "gpt_fast_generate", known)
    if lab.on_gpu:
        lab.forget_compiled()
        eager = vars(program).setdefault("eager_decode_one_token", program.decode_one_token)
        program.decode_one_token = torch.compile(eager, mode="reduce-overhead", fullgraph=True)
    # a gate makes three matrices of two: 2/3 as wide, they are as many numbers
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

    def write() -> int:
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

    return Writer(write, warm_up=2)
